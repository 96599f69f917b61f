import math

import pytest
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Job
from unspool.decode.ranking import GNMT, FirstFull, Heuristic, Length, Proved, Sum
from unspool.decode.search.beam import Beam
from unspool.decode.search.constrained_beam import ConstrainedBeam
from unspool.interfaces import Abilities
from unspool.testing import TableModel, random_table

PENALTIES = [Sum(), Length(1.0), GNMT(0.6)]
STOPS = [FirstFull(), Heuristic(), Proved()]


def run(decoder, model, job):
    ended = [path for frontier in decoder(model, job) for path in frontier.ended]
    return sorted(ended, key=lambda path: (path.request, path.sample))


def one(prompt=(1,), limit=4, n=1, eos=()):
    return Job((tuple(prompt),), (limit,), (0,), n, frozenset(eos))


def holds(tokens, phrase):
    return any(tokens[at : at + len(phrase)] == phrase for at in range(len(tokens)))


def summary(paths):
    return [(path.tokens, path.total, path.finish_reason) for path in paths]


def test_by_hand():
    # 2 is improbable everywhere, least so after 1; 3 ends.
    rows = {0: [0.6, 0.2, 0.01, 0.19], 1: [0.3, 0.2, 0.3, 0.2], 2: [0.2, 0.2, 0.1, 0.5], 3: [0.25] * 4}
    model = TableModel(lambda row: rows[row[-1]])
    (best,) = run(ConstrainedBeam(4, ((2,),)), model, one((0,), limit=4, eos={3}))
    # 0.2 · 0.3 · 0.5 beats 0.6 · 0.6 · 0.2 · 0.3, which the limit ends.
    assert best.tokens == (1, 2, 3)
    assert best.total == pytest.approx(math.log(0.2 * 0.3 * 0.5))
    assert best.notes["unmet"] == ()
    (free,) = run(Beam(4), model, one((0,), limit=4, eos={3}))
    assert free.tokens == (3,)


phrase = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(phrase, min_size=1, max_size=3),
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from(PENALTIES),
    st.sampled_from(STOPS),
)
def test_every_text_holds_every_phrase_even_where_the_limit_just_suffices(
    seed, phrases, width, spare, penalty, stop
):
    limit = sum(map(len, phrases)) + spare
    decoder = ConstrainedBeam(width, phrases, length_penalty=penalty, stop=stop)
    paths = run(decoder, random_table(6, seed), one(limit=limit, n=width, eos={0}))
    assert paths
    for path in paths:
        assert all(holds(path.tokens, phrase) for phrase in phrases)
        assert path.notes["unmet"] == ()
        assert path.total == pytest.approx(penalty(sum(path.logps), len(path.tokens)), abs=1e-9)
    assert len({path.tokens for path in paths}) == len(paths)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(PENALTIES), st.sampled_from(STOPS))
def test_without_phrases_it_is_beam_search(seed, width, penalty, stop):
    model, job = random_table(6, seed), one(limit=6, n=width, eos={0})
    options = {"length_penalty": penalty, "stop": stop}
    assert summary(run(ConstrainedBeam(width, (), **options), model, job)) == summary(
        run(Beam(width, **options), model, job)
    )


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_a_beam_as_wide_as_all_texts_finds_the_best_that_hold_the_phrases(penalty):
    phrases, limit, V = ((1, 2), (0,)), 5, 3
    for seed in range(4):
        model = random_table(V, seed)
        every = run(Beam(V**limit, length_penalty=penalty), model, one(limit=limit, n=V**limit))
        best = [path for path in every if all(holds(path.tokens, phrase) for phrase in phrases)]
        # Each bank has a share of the places, so that all of them have to be wide enough.
        wide = ConstrainedBeam(4 * V**limit, phrases, length_penalty=penalty)
        found = run(wide, model, one(limit=limit, n=3))
        assert [path.tokens for path in found] == [path.tokens for path in best[:3]]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.randoms())
def test_batch_mates_make_no_difference(seed, random):
    model, decoder = random_table(6, seed), ConstrainedBeam(3, ((3, 4), (5,)))
    prompts = tuple(tuple(random.choices(range(6), k=random.randint(1, 3))) for _ in range(3))
    limits = tuple(random.randint(3, 7) for _ in prompts)
    together = run(decoder, model, Job(prompts, limits, (0,) * 3, 2, frozenset({0})))
    for request, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        mine = [path for path in together if path.request == request]
        assert summary(mine) == summary(run(decoder, model, one(prompt, limit, 2, {0})))


def test_a_phrase_without_any_probability_is_reported():
    model = TableModel(lambda row: [0.1, 0.5, 0.4, 0.0])
    paths = run(ConstrainedBeam(3, ((3,), (2, 1))), model, one(limit=4, n=2, eos={0}))
    assert len(paths) == 2
    for path in paths:
        assert path.notes["unmet"] == ((3,),)
        assert holds(path.tokens, (2, 1))


def test_a_hypothesis_that_has_its_phrases_is_carried_on_by_its_own_best_token():
    # 3 is rare, and what follows it is never among the best of the whole beam.
    model = TableModel(
        lambda row: [0.99, 0.002, 0.002, 0.002, 0.004] if 3 in row else [0.25, 0.25, 0.25, 0.005, 0.245]
    )
    (best,) = run(ConstrainedBeam(2, ((3,),)), model, one(limit=3))
    assert best.tokens == (3, 0, 0)


def test_phrases_may_overlap():
    (best,) = run(ConstrainedBeam(9, ((1, 2), (2, 3))), TableModel(lambda row: [0.25] * 4), one(limit=4))
    assert holds(best.tokens, (1, 2))
    assert holds(best.tokens, (2, 3))


class Letters:
    """One letter per token, and a token before every text."""

    bos_id, eos_ids = 0, frozenset()

    def encode(self, text):
        return [0, *(" abcd".index(letter) for letter in text)]


def test_a_string_is_encoded_by_the_models_tokenizer():
    model = TableModel(lambda row: [0.2] * 5, tokenizer=Letters())
    (best,) = run(ConstrainedBeam(4, ("ba",)), model, one(limit=3))
    assert holds(best.tokens, (2, 1))
    with pytest.raises(ValueError, match="needs a tokenizer"):
        ConstrainedBeam(4, ("ba",))(TableModel(lambda row: [0.2] * 5), one())


@pytest.mark.parametrize(
    ("phrases", "error", "words"),
    [
        ("ab", TypeError, "Give a tuple of words, even for one"),
        (7, TypeError, "Give a tuple of words, even for one"),
        ((7,), TypeError, "Write a tuple even for one"),
        (((),), ValueError, "empty"),
        (("",), ValueError, "empty"),
        (((1, -2),), ValueError, "whole number ≥ 0"),
        (((1.5,),), TypeError, "whole number"),
    ],
)
def test_what_is_no_phrase_is_refused(phrases, error, words):
    with pytest.raises(error, match=words):
        ConstrainedBeam(4, phrases)


class Untouchable(Abilities):
    vocab_size, context, tokenizer = 6, None, None

    def start(self, prompts):
        raise AssertionError("the model was called")


@pytest.mark.parametrize(
    ("phrases", "job", "words"),
    [
        (((1, 2), (3, 4)), one(limit=3), "have 4 tokens but request 0 may generate 3"),
        (((1, 9),), one(), r"token ids \[9\]"),
        (((1, 0),), one(eos={0}), "contains an end-of-text token"),
        (((1,),), one(n=5), "n=5 is more than"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_model_is_called(phrases, job, words):
    with pytest.raises(ValueError, match=words):
        ConstrainedBeam(4, phrases)(Untouchable(), job)


def test_what_repr_prints_makes_the_same_search_again():
    decoder = ConstrainedBeam(4, ((3, 4), " a"), stop=FirstFull())
    assert repr(decoder) == "ConstrainedBeam(4, ((3, 4), ' a'), stop=FirstFull())"
    assert eval(repr(decoder), {"ConstrainedBeam": ConstrainedBeam, "FirstFull": FirstFull}) == decoder
    assert not decoder.streams


class Spelled:
    """A watch of one digit a token, with a stop string."""

    def __init__(self, text="", stop=(), finish=None):
        self.text, self.stop, self.finish_reason = text, stop, finish

    def push(self, token):
        text = self.text + str(token)
        for stop in self.stop:
            if stop in text:
                return Spelled(text[: text.index(stop)], self.stop, "stop")
        return Spelled(text, self.stop)

    def close(self):
        return self.text


class Digits:
    bos_id, eos_ids = None, frozenset()

    def detokenizer(self, stop=(), after=None):
        return Spelled("", tuple(stop))


def test_a_phrase_that_a_stop_string_cuts_off_is_unmet():
    # 2 3 is written, but "3" stops the text before it: only 2 is left of it.
    model = TableModel(lambda row: [0.1, 0.2, 0.3, 0.4], tokenizer=Digits())
    job = Job(((1,),), (3,), (0,), 1, frozenset(), (Spelled("", ("3",)),))
    (best,) = run(ConstrainedBeam(4, ((2, 3),)), model, job)
    assert best.notes["unmet"] == ((2, 3),)
    # A stop string behind the phrase leaves it whole.
    job = Job(((1,),), (4,), (0,), 1, frozenset(), (Spelled("", ("1",)),))
    (best,) = run(ConstrainedBeam(4, ((2, 3),)), model, job)
    assert best.notes["unmet"] == ()
    assert "23" in best.detokenizer.close()
