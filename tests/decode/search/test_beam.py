import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Job
from unspool.decode.ranking import GNMT, Coverage, FirstFull, Heuristic, Length, Proved, Sum
from unspool.decode.search.beam import Beam
from unspool.decode.search.sampling import Greedy
from unspool.interfaces import Abilities, Step
from unspool.testing import TableModel, bigram, random_table

PENALTIES = [Sum(), Length(1.0), Length(-0.7), Length(2.5), GNMT(0.6), GNMT(-1.0)]
STOPS = [FirstFull(), Heuristic(), Proved()]


class Never:
    """The rule that runs to the limit."""

    def __call__(self, standing):
        return False


class Untouchable(Abilities):
    """A model that must not be called."""

    vocab_size, context, tokenizer = 5, None, None

    def start(self, prompts):
        raise AssertionError("the model was called")


def run(decoder, model, job):
    ended = [path for frontier in decoder(model, job) for path in frontier.ended]
    return sorted(ended, key=lambda path: (path.request, path.sample))


def one(prompt=(1,), limit=4, n=1, eos=()):
    return Job((tuple(prompt),), (limit,), (0,), n, frozenset(eos))


def every_text(model, prompt, limit, eos):
    """Each whole text with the sum of its log-probabilities, as the model's own float32 says."""
    found, growing = [], [((), 0.0)]
    while growing:
        tokens, total = growing.pop()
        logp = torch.tensor(model.table((*prompt, *tokens))).log().tolist()
        for token, value in enumerate(logp):
            text = ((*tokens, token), total + value)
            (found if token in eos or len(tokens) + 1 == limit else growing).append(text)
    return found


def greedy_trap():
    """0 looks best at first; 1 leads to more. 3 ends."""
    rows = [[0.4, 0.3, 0.2, 0.1], [0.1, 0.1, 0.0, 0.8], [0.25] * 4, [0.25] * 4]
    start = [0.5, 0.4, 0.05, 0.05]
    return TableModel(lambda row: rows[row[-1]] if len(row) > 1 else start)


def test_by_hand():
    (best,) = run(Beam(2), greedy_trap(), one((2,), limit=2, eos={3}))
    # 0.4 · 0.8 beats 0.5 · 0.4
    assert (best.tokens, best.finish_reason) == ((1, 3), "eos")
    assert best.total == pytest.approx(math.log(0.4 * 0.8))
    assert best.logps == pytest.approx((math.log(0.4), math.log(0.8)))
    assert best.scores == best.logps
    (greedy,) = run(Greedy(), greedy_trap(), one((2,), limit=2, eos={3}))
    assert greedy.tokens == (0, 0)


def test_the_tree_by_hand():
    (best,) = run(Beam(2), greedy_trap(), one((2,), limit=2, eos={3}))
    assert [(node.parent, node.token, node.status) for node in best.notes["tree"]] == [
        (-1, 0, "grown"),
        (-1, 1, "grown"),
        (1, 3, "eos"),
        (0, 0, "length"),
    ]
    assert best.notes["tree"][2].score == best.total


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 6),
    st.integers(1, 8),
    st.sampled_from(PENALTIES),
    st.sampled_from(STOPS),
)
def test_width_one_is_greedy(seed, V, limit, penalty, stop):
    model, job = random_table(V, seed), Job(((1,), (0, 1)), (limit, 3), (0, 0), 1, frozenset({0}))
    mine = run(Beam(1, length_penalty=penalty, stop=stop), model, job)
    for beam, greedy in zip(mine, run(Greedy(), model, job), strict=True):
        assert (beam.tokens, beam.finish_reason) == (greedy.tokens, greedy.finish_reason)
        assert beam.logps == greedy.logps


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
@pytest.mark.parametrize("eos", [(), (0,), (0, 2)])
def test_a_beam_as_wide_as_all_texts_is_exact(penalty, eos):
    V, limit = 3, 4
    for seed in range(4):
        model = random_table(V, seed)
        ranked = [(penalty(total, len(text)), text) for text, total in every_text(model, (1,), limit, eos)]
        ranked.sort(key=lambda entry: -entry[0])
        n = min(10, len(ranked))
        found = run(Beam(V**limit, length_penalty=penalty), model, one(limit=limit, n=n, eos=eos))
        assert [path.tokens for path in found] == [text for _, text in ranked[:n]]
        assert [path.total for path in found] == pytest.approx([score for score, _ in ranked[:n]], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(PENALTIES), st.sampled_from([0.5, 1.0, 2.0])
)
def test_what_proved_returns_is_what_running_to_the_limit_returns(seed, width, penalty, patience):
    model, job = random_table(5, seed, spread=1.0), one(limit=7, eos={0, 3})
    early, late = (
        run(Beam(width, length_penalty=penalty, patience=patience, stop=stop), model, job)
        for stop in (Proved(), Never())
    )
    assert [(path.tokens, path.total) for path in early] == [(path.tokens, path.total) for path in late]


def test_proved_does_stop_early():
    model, job = bigram([[0.5, 0.5], [0.9, 0.1]]), one(limit=50, eos={0})
    steps = {repr(stop): len(list(Beam(2, stop=stop)(model, job))) for stop in (*STOPS, Never())}
    assert steps["FirstFull()"] <= steps["Proved()"] < 10
    assert max(steps.values()) == 50


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.sampled_from(PENALTIES),
    st.sampled_from(STOPS),
    st.randoms(),
)
def test_batch_mates_make_no_difference(seed, width, penalty, stop, random):
    model, beam = random_table(6, seed), Beam(width, length_penalty=penalty, stop=stop)
    prompts = tuple(tuple(random.choices(range(6), k=random.randint(1, 3))) for _ in range(4))
    limits = tuple(random.randint(1, 7) for _ in prompts)
    together = run(beam, model, Job(prompts, limits, (0,) * 4, width, frozenset({0})))
    for request, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        mine = [path for path in together if path.request == request]
        alone = run(beam, model, one(prompt, limit, width, {0}))
        assert [(path.tokens, path.total, path.finish_reason) for path in mine] == [
            (path.tokens, path.total, path.finish_reason) for path in alone
        ]
        assert mine[0].notes == alone[0].notes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(PENALTIES), st.sampled_from(STOPS))
def test_answers_are_different_ranked_and_worth_what_they_say(seed, width, penalty, stop):
    found = run(Beam(width, length_penalty=penalty, stop=stop), random_table(7, seed), one(n=width, eos={0}))
    assert [path.sample for path in found] == list(range(width))
    assert len({path.tokens for path in found}) == width
    assert [path.total for path in found] == sorted((path.total for path in found), reverse=True)
    for path in found:
        assert path.total == pytest.approx(penalty(sum(path.scores), len(path.tokens)), abs=1e-9)
        assert path.finish_reason == ("eos" if path.tokens[-1] == 0 else "length")


def test_a_model_that_never_ends_is_ended_by_the_limit():
    found = run(Beam(3), random_table(4, 1), Job(((1,), (2,)), (9, 5), (0, 0), 3))
    assert [len(path.tokens) for path in found] == [9, 9, 9, 5, 5, 5]
    assert {path.finish_reason for path in found} == {"length"}


class StopAt:
    """A watch that ends a text after token 2."""

    def __init__(self, text="", finish=None):
        self.text, self.finish_reason = text, finish

    def push(self, token):
        return StopAt(self.text, "stop") if token == 2 else StopAt(self.text + str(token))

    def close(self):
        return self.text


def test_a_stop_string_ends_a_hypothesis():
    job = Job(((1,),), (4,), (0,), 3, frozenset({0}), (StopAt(),))
    found = run(Beam(3), TableModel(lambda row: [0.1, 0.3, 0.4, 0.2]), job)
    assert [(path.tokens, path.finish_reason) for path in found] == [
        ((2,), "stop"),
        ((1, 2), "stop"),
        ((3, 2), "stop"),
    ]


def test_of_equal_scores_the_smaller_hypothesis_and_token_come_first():
    found = run(Beam(4), TableModel(lambda row: [0.25] * 4), one(limit=2, n=4))
    assert [path.tokens for path in found] == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_patience_collects_more_before_it_stops():
    model, job = bigram([[0.5, 0.5], [0.55, 0.45]]), one(limit=30, eos={0})
    steps = [len(list(Beam(2, patience=p, stop=FirstFull())(model, job))) for p in (0.5, 1.0, 2.0, 4.0)]
    assert steps == sorted(set(steps))
    patient = run(Beam(2, patience=10.0, stop=FirstFull(), length_penalty=Length(2.0)), model, job)
    hasty = run(Beam(2, stop=FirstFull(), length_penalty=Length(2.0)), model, job)
    assert patient[0].total > hasty[0].total


def half(scores_NV, step, history):
    assert len(history) == len(scores_NV)
    return scores_NV / 2


def test_transforms_reshape_what_is_ranked_and_leave_the_models_own_log_p():
    model = bigram([[0.8, 0.2], [0.5, 0.5]])
    (best,) = run(Beam(2, half), model, one((0,), limit=2))
    flat = math.sqrt(0.8) / (math.sqrt(0.8) + math.sqrt(0.2))
    assert best.scores == pytest.approx((math.log(flat),) * 2)
    assert best.logps == pytest.approx((math.log(0.8),) * 2)
    assert best.total == pytest.approx(2 * math.log(flat))


class Contrasting(TableModel):
    """Adds a score of its own, positive where it likes a token."""

    def _predict(self, state):
        step, state = super()._predict(state)
        bonus = torch.tensor([0.0, 3.0, 0.5])
        return Step(step.logp_NV, score_NV=step.logp_NV + bonus), state


def test_a_models_own_score_is_what_is_ranked():
    model = Contrasting(lambda row: [0.7, 0.1, 0.2])
    (best,) = run(Beam(3), model, one(limit=3, eos={0}))
    assert best.tokens == (1, 1, 1)
    assert best.total == pytest.approx(3 * (math.log(0.1) + 3.0), abs=1e-5)
    assert best.logps == pytest.approx((math.log(0.1),) * 3)


class Attending(TableModel):
    """Looks at source token i while it says token i."""

    def _predict(self, state):
        step, state = super()._predict(state)
        attention = torch.tensor(
            [[0.98, 0.01, 0.01] if row[-1] == 1 else [0.1, 0.45, 0.45] for row in state.rows]
        )
        return Step(step.logp_NV, attention=attention), state


def test_coverage_ranks_what_has_looked_at_everything_first():
    model = Attending(lambda row: [0.1, 0.5, 0.4])
    job = one((1,), limit=4, n=4)
    plain, covering = (run(Beam(81, coverage=c), model, job) for c in (None, Coverage(1.0)))
    assert plain[0].tokens == (1, 1, 1, 1)
    assert covering[0].tokens[:3] in set(product([1, 2], repeat=3)) - {(1, 1, 1)}
    for path in covering:
        looked = torch.tensor(
            [[0.98, 0.01, 0.01] if t == 1 else [0.1, 0.45, 0.45] for t in (1, *path.tokens[:-1])]
        ).sum(0)
        assert path.total == pytest.approx(sum(path.logps) + looked.clamp(max=1).log().sum().item(), abs=1e-5)


def test_coverage_refuses_a_model_without_attention():
    with pytest.raises(ValueError, match=r"Coverage needs Step.attention"):
        run(Beam(2, coverage=Coverage()), random_table(4, 1), one())


def test_fewer_texts_come_back_where_fewer_are_possible():
    assert len(run(Beam(5), TableModel(lambda row: [0.6, 0.4]), one(limit=1, n=5))) == 2
    assert len(run(Beam(5), TableModel(lambda row: [1.0, 0.0]), one(limit=4, n=2))) == 1


def test_the_model_and_its_steps_are_not_written_to():
    class Guarded(TableModel):
        def _predict(self, state):
            step, state = super()._predict(state)
            said.append((step.logp_NV, step.logp_NV.clone()))
            return step, state

    said = []
    run(Beam(3, half), Guarded(random_table(5, 2).table), one(limit=5, eos={0}))
    assert len(said) > 1
    assert all(torch.equal(now, then) for now, then in said)


def test_errors_come_before_the_model_is_called():
    with pytest.raises(ValueError, match="n=3 is more than the beam keeps, 2"):
        Beam(2)(Untouchable(), one(n=3))
    with pytest.raises(ValueError, match="width"):
        Beam(0)


def test_what_repr_prints_makes_the_same_search_again():
    names = {kind.__name__: kind for kind in (Beam, GNMT, Coverage, FirstFull)}
    for beam in (
        Beam(5),
        Beam(3, length_penalty=GNMT(0.6), coverage=Coverage(), patience=2.0, stop=FirstFull()),
    ):
        assert eval(repr(beam), names) == beam
    assert repr(Beam(5)) == "Beam(5)"
    assert not Beam(5).streams
