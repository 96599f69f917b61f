import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest
import torch
from scipy.stats import chisquare

from unspool.decode.combine import Contrast
from unspool.decode.generate import generate, stream
from unspool.decode.hypothesis import Job
from unspool.decode.multinomial import Multinomial
from unspool.decode.picks import ArgMax
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.drafts import JoinedReader, PromptLookup
from unspool.decode.search.sampling import PromptStart
from unspool.decode.search.speculative import Speculative
from unspool.decode.transforms import RepetitionPenalty, Temperature
from unspool.interfaces import Abilities
from unspool.models.transformer_lm import TransformerConfig, TransformerLM
from unspool.testing import TableModel, TableState, bigram, random_table

PROMPTS = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10]]
STRONG = bigram([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]])
DRAFT = bigram([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8], [0.0, 0.5, 0.5]])


def tiny(seed, layers=2):
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=17,
        width=16,
        layers=layers,
        heads=4,
        kv_heads=2,
        head_width=4,
        inner_width=24,
        context=48,
    )
    return TransformerLM(config).eval()


LARGE, SMALL = tiny(0, layers=3), tiny(1, layers=1)


def nearly(model, seed):
    """The same model with a little noise: a draft that is right now and then."""
    other = tiny(0, layers=model.layers)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return other


def square(scores_NV, step, history):
    """Temperature ½."""
    return 2 * scores_NV


def cut_the_last_token(scores_NV, step, history):
    """A transform that depends on the history: no token comes twice in a row."""
    scores_NV = scores_NV.clone()
    for row, path in enumerate(history):
        scores_NV[row, (*path.prompt, *path.tokens)[-1]] = -math.inf
    return scores_NV


def seen_scores(scores_NV, step, history):
    """A transform that depends on what earlier tokens were drawn from: the surer, the flatter."""
    return scores_NV * torch.tensor([[1 + abs(math.fsum(path.scores))] for path in history])


@pytest.mark.parametrize("length", [1, 2, 4, 9])
@pytest.mark.parametrize("draft", [SMALL, nearly(LARGE, 1), LARGE], ids=["other", "near", "same"])
def test_greedy_is_greedy_token_by_token(draft, length):
    want = generate(LARGE, PROMPTS, Greedy(), max_new_tokens=20)
    outs = generate(LARGE, PROMPTS, Speculative(draft, ArgMax(), length=length), max_new_tokens=20)
    for out, alone in zip(outs, want, strict=True):
        assert (out.tokens, out.finish_reason) == (alone.tokens, alone.finish_reason)
        assert out.logps == pytest.approx(alone.logps, abs=1e-4)
        assert out.scores == pytest.approx(alone.scores, abs=1e-4)


def test_greedy_with_transforms_is_greedy_with_them():
    rules = (square, cut_the_last_token)
    want = generate(LARGE, PROMPTS, Greedy(*rules), max_new_tokens=16)
    outs = generate(LARGE, PROMPTS, Speculative(SMALL, *rules, ArgMax()), max_new_tokens=16)
    for out, alone in zip(outs, want, strict=True):
        assert out.tokens == alone.tokens
        assert out.scores == pytest.approx(alone.scores, abs=1e-4)


def sequence_probability(model, transforms, tokens):
    """Of a sequence after [0], by Sample's own rules: its scores, forced."""

    @dataclass(frozen=True)
    class Forced(Abilities):
        def draw(self, scores_NV, step, rng):
            place = next(self.places)
            return torch.tensor([tokens[place]])

        places = itertools.count()

    out = generate(model, [0], Sample(*transforms, Forced()), max_new_tokens=len(tokens))
    return math.exp(math.fsum(out.scores))


@pytest.mark.parametrize(
    ("length", "transforms"),
    [(1, ()), (2, ()), (4, ()), (3, (square, cut_the_last_token)), (2, (seen_scores,))],
)
def test_sequences_have_exactly_the_models_distribution(length, transforms):
    draws, cells = 1000, list(itertools.product(range(3), repeat=3))
    decoder = Speculative(DRAFT, *transforms, length=length)
    outs = generate(STRONG, [0], decoder, max_new_tokens=3, n=draws, seed=11)
    counts = Counter(out.tokens for out in outs)
    p = {cell: sequence_probability(STRONG, transforms, cell) for cell in cells}
    assert sum(p.values()) == pytest.approx(1.0, abs=1e-5)
    possible = [cell for cell in cells if p[cell] > 0]
    assert set(counts) <= set(possible)
    total = sum(p[cell] for cell in possible)
    expected = [draws * p[cell] / total for cell in possible]
    assert chisquare([counts[cell] for cell in possible], expected).pvalue > 1e-3
    accepted, proposed = (sum(out.stats[key] for out in outs) for key in ("accepted", "proposed"))
    assert 0.2 < accepted / proposed < 0.9  # both ways out of the test were taken


@pytest.mark.parametrize(
    ("length", "transforms"), [(1, ()), (4, ()), (3, (square, cut_the_last_token)), (2, (seen_scores,))]
)
def test_sequences_that_were_looked_up_have_exactly_the_models_distribution(length, transforms):
    draws, cells = 1500, list(itertools.product(range(3), repeat=4))
    decoder = Speculative(PromptLookup(2, 1), *transforms, length=length)
    outs = generate(STRONG, [0], decoder, max_new_tokens=4, n=draws, seed=12)
    counts = Counter(out.tokens for out in outs)
    p = {cell: sequence_probability(STRONG, transforms, cell) for cell in cells}
    possible = [cell for cell in cells if p[cell] > 0]
    assert set(counts) <= set(possible)
    total = sum(p[cell] for cell in possible)
    expected = [draws * p[cell] / total for cell in possible]
    assert chisquare([counts[cell] for cell in possible], expected).pvalue > 1e-3
    accepted, proposed = (sum(out.stats[key] for out in outs) for key in ("accepted", "proposed"))
    assert 0.2 < accepted / proposed < 0.9


TRANSFORMERS = {"compiled": LARGE, "torch": tiny(0, layers=3)}
TRANSFORMERS["torch"].engine = "torch"


@pytest.mark.parametrize("engine", TRANSFORMERS)
@pytest.mark.parametrize("draft", [SMALL, LARGE, PromptLookup(2, 1), PromptLookup()])
def test_whole_batches_have_the_greedy_texts(engine, draft):
    model, prompts = TRANSFORMERS[engine], [[1, 2, 3] * 4, [7], [8, 9, 10, 8, 9], [5] * 9]
    assert model.joining is not None
    want = generate(model, prompts, Greedy(), max_new_tokens=24)
    outs = generate(model, prompts, Speculative(draft, ArgMax(), length=5), max_new_tokens=24)
    assert [out.tokens for out in outs] == [out.tokens for out in want]


@dataclass(frozen=True)
class CountedJoining(Abilities):
    """A table model that notes how many rows and tokens each call extends."""

    inner: TableModel
    calls: list[tuple[int, int]]
    context: int | None = None
    tokenizer: None = None

    @property
    def vocab_size(self):
        return self.inner.vocab_size

    @property
    def rewindable(self):
        return self.inner.rewindable

    @property
    def joining(self):
        return self

    def start(self, prompts):
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        raise AssertionError("rows are extended together")

    def extend_rows(self, state, rows_M, tokens_MT):
        self.calls.append(tuple(tokens_MT.shape))
        return self.inner.extend_rows(state, rows_M, tokens_MT)

    def rewind_rows(self, state, rows_M, tokens_M):
        return self.inner.rewind_rows(state, rows_M, tokens_M)


def test_the_rows_of_a_batch_are_drafted_and_verified_in_one_pass():
    model, draft = CountedJoining(STRONG, []), CountedJoining(STRONG, [])
    outs = generate(model, [[0], [1, 2], [2]], Speculative(draft, length=2), max_new_tokens=7, seed=3)
    assert [out.stats["accepted"] for out in outs] == [4] * 3
    # the first two drafts follow what the prompts predict, and the second two the token on top of them
    assert model.calls == [(3, 2), (3, 3), (3, 1)]
    assert draft.calls == [(3, 1), (3, 2), (3, 1)]


def test_lookup_continues_the_last_occurrence_of_the_longest_ngram():
    index = PromptLookup(3, 1).index([1, 2, 3, 4, 9, 2, 3, 5, 9, 1, 2, 3])
    assert index.draft(3) == [4, 9, 2]  # of (1, 2, 3), not what came last after (2, 3)
    index.extend([7, 2, 3])
    assert index.draft(2) == [7, 2]  # after the last (2, 3)
    index.extend([8])
    assert index.draft(2) == []
    assert PromptLookup(3, 2).index([5, 1, 5]).draft(2) == []
    assert PromptLookup(3, 1).index([5, 1, 5]).draft(2) == [1, 5]
    assert PromptLookup(3, 1).index([]).draft(2) == []


def test_lookup_continues_a_loop_beyond_the_end():
    assert PromptLookup().index([1, 2, 3, 1, 2, 3, 1, 2]).draft(7) == [3, 1, 2, 3, 1, 2, 3]
    assert PromptLookup().index([4, 4, 4]).draft(4) == [4] * 4


def test_lookup_drafts_less_after_a_rejection_and_more_after_success():
    text = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]

    def line(row):
        following = (row[-1] + 1) % 12 if len(row) != 16 else 0
        return [1.0 if token == following else 0.0 for token in range(12)]

    model = Counting(TableModel(line), [])
    out = generate(
        model, [*text, 0, 1], Speculative(PromptLookup(), ArgMax(), length=4), max_new_tokens=12, seed=1
    )
    assert out.tokens == (2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    # 4 of 2, 3, 4, 5 is rejected, so two were accepted; 3, 0 is new; of 2, 3, 0 two are accepted; then 5, 6, 7
    assert model.reads == [4, 1, 4, 4, 1]
    assert out.stats == {"proposed": 10, "accepted": 7, "rounds": 5}


@pytest.mark.parametrize("sizes", [(0,), (2, 3), (33,), (2.5,)])
def test_ngram_sizes_are_checked(sizes):
    with pytest.raises((ValueError, TypeError), match=r"PromptLookup\."):
        PromptLookup(*sizes)


def test_accepted_as_often_as_the_distributions_overlap():
    # Σ min(p, q) of (0.5, 0.3, 0.2) and (0.2, 0.3, 0.5)
    strong, draft = TableModel(lambda row: (0.5, 0.3, 0.2)), TableModel(lambda row: (0.2, 0.3, 0.5))
    outs = generate(strong, [0], Speculative(draft, length=1), max_new_tokens=2, n=1000, seed=1)
    first = sum(out.stats["accepted"] for out in outs)
    assert sum(out.stats["proposed"] for out in outs) == 1000
    assert chisquare([first, 1000 - first], [1000 * 0.7, 1000 * 0.3]).pvalue > 1e-3


def test_a_perfect_draft_is_always_right():
    out = generate(LARGE, [1, 2], Speculative(LARGE, length=4), max_new_tokens=20, seed=1)
    assert out.stats == {"proposed": 16, "accepted": 16, "rounds": 4}


def test_a_hopeless_draft_costs_a_round_for_each_token():
    strong = TableModel(lambda row: (0.5, 0.5, 0.0))
    out = generate(
        strong, [0], Speculative(TableModel(lambda row: (0.0, 0.0, 1.0))), max_new_tokens=7, seed=1
    )
    assert out.stats["accepted"] == 0
    assert out.stats["rounds"] == 7
    assert set(out.tokens) <= {0, 1}


@dataclass(frozen=True)
class Counting(Abilities):
    """A table model that notes how many tokens it is given at a time."""

    inner: TableModel
    reads: list[int]
    starts: list[int] = field(default_factory=list)
    context: int | None = None
    tokenizer: None = None

    @property
    def vocab_size(self):
        return self.inner.vocab_size

    @property
    def rewindable(self):
        return self

    def start(self, prompts):
        self.starts.append(len(prompts))
        return self.inner.start(prompts)

    def step(self, state, tokens_N):
        raise AssertionError("speculative decoding reads several tokens at once")

    def extend(self, state, tokens_NT):
        self.reads.append(tokens_NT.shape[1])
        return self.inner.extend(state, tokens_NT)

    def rewind(self, state, tokens):
        return self.inner.rewind(state, tokens)


def test_the_model_reads_each_draft_in_one_pass_and_none_beyond_the_limit():
    model = Counting(STRONG, [])
    out = generate(model, [0], Speculative(STRONG, length=3), max_new_tokens=10, seed=2)
    # three drafted; then the token on top and three more; 8 of 10 are there, and one more draft has room
    assert model.reads == [3, 4, 2]
    assert out.stats == {"proposed": 7, "accepted": 7, "rounds": 3}
    assert len(out.tokens) == 10
    alone = Counting(STRONG, [])
    generate(alone, [0], Speculative(DRAFT), max_new_tokens=1, seed=2)
    assert alone.reads == []


def test_thousands_of_texts_share_the_reading_of_a_prompt_and_wait_their_turn():
    model, draft = Counting(STRONG, []), Counting(DRAFT, [])
    generate(model, [0], Speculative(draft), max_new_tokens=1, n=700, seed=2)
    assert (model.starts, draft.starts) == ([1], [])
    job = Job(((1,), (0, 2)), (4, 4), (5, 6), n=5, rows=3)
    live = [len(frontier.live) + len(frontier.ended) for frontier in Speculative(DRAFT)(STRONG, job)]
    assert max(live) == 3
    told = {"max_new_tokens": 8, "n": 4, "seed": 6}
    want = generate(LARGE, PROMPTS, Speculative(SMALL), **told)
    for rows in (1, 3, 100):
        assert generate(LARGE, PROMPTS, Speculative(SMALL), batch_size=rows, **told) == want


@pytest.mark.parametrize("draft", [SMALL, PromptLookup(2, 1)], ids=["model", "lookup"])
def test_the_same_seed_gives_the_same_text_and_the_same_drafts_in_any_company(draft):
    decoder = Speculative(draft, length=3)
    together = generate(LARGE, PROMPTS, decoder, max_new_tokens=12, n=2, seed=6)
    # Some texts leave the batch before others.
    assert len({out.stats["rounds"] for group in together for out in group}) > 1
    for prompt, group in zip(PROMPTS, together, strict=True):
        alone = generate(LARGE, prompt, decoder, max_new_tokens=12, n=2, seed=6)
        assert [(out.tokens, out.stats) for out in alone] == [(out.tokens, out.stats) for out in group]
    seeds = [generate(LARGE, PROMPTS[0], decoder, max_new_tokens=12, seed=seed).tokens for seed in range(5)]
    assert len(set(seeds)) > 2


def test_logps_are_the_models_own_and_scores_what_was_drawn_from():
    out = generate(LARGE, [1, 2], Speculative(SMALL, square), max_new_tokens=12, seed=3)
    tokens = torch.tensor([[1, 2, *out.tokens]])
    with torch.no_grad():
        logp = LARGE(tokens[:, :-1])[0, 1:]
    want = logp.gather(1, tokens[0, 2:, None])[:, 0].tolist()
    assert out.logps == pytest.approx(want, abs=1e-4)
    reshaped = (2 * logp).log_softmax(-1).gather(1, tokens[0, 2:, None])[:, 0].tolist()
    assert out.scores == pytest.approx(reshaped, abs=1e-4)


@dataclass(frozen=True)
class DotWatch:
    """Stops at a text of "cd"."""

    text: str = ""

    @property
    def finish_reason(self):
        return "stop" if "cd" in self.text else None

    def push(self, token):
        return DotWatch(self.text + "abcd."[token])

    def close(self):
        return self.text


class Letters:
    vocab_size, bos_id, eos_ids = 5, None, frozenset({4})

    def encode(self, text):
        return ["abcd.".index(letter) for letter in text]

    def decode(self, ids):
        return "".join("abcd."[i] for i in ids)

    def detokenizer(self, stop=(), after=None):
        return DotWatch()


def test_ends_in_the_middle_of_a_draft_are_ends():
    for last, finish in ((4, "eos"), (3, "stop")):

        def line(row, last=last):
            following = {0: 1, 1: 2, 2: last}.get(row[-1], 0)
            return [0.96 if token == following else 0.01 for token in range(5)]

        model = TableModel(line, tokenizer=Letters())
        want = generate(model, "a", Greedy())
        out = generate(model, "a", Speculative(model, ArgMax(), length=8))
        assert out.tokens == want.tokens == (1, 2, last)
        assert (out.finish_reason, out.text) == (finish, want.text)


def test_a_stream_shows_what_a_round_accepts():
    decoder = Speculative(LARGE, length=3)
    pieces = list(stream(LARGE, [1, 2], decoder, max_new_tokens=10, seed=1))
    assert [len(piece.tokens) for piece in pieces] == [4, 4, 2]
    whole = generate(LARGE, [1, 2], decoder, max_new_tokens=10, seed=1)
    assert sum((piece.tokens for piece in pieces), ()) == whole.tokens
    assert decoder.streams


def test_a_contrast_may_be_drafted_for_and_may_draft():
    model = Contrast(LARGE, SMALL)
    want = generate(model, PROMPTS, Greedy(), max_new_tokens=12)
    for draft in (SMALL, LARGE, Contrast(SMALL, LARGE)):
        outs = generate(model, PROMPTS, Speculative(draft, ArgMax()), max_new_tokens=12)
        assert [out.tokens for out in outs] == [out.tokens for out in want]


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: Contrast(model, model, 0, 0)])
def test_a_reading_catches_up_and_forgets(wrap):
    model = random_table(5, seed=3)
    assert (wrap(model).joining is None) == (wrap(model) is not model)
    reading = JoinedReader(PromptStart(wrap(model), [[1, 2]]), [0])

    def want(*rows):
        return torch.cat([model.start([row])[0].logp_NV for row in rows])

    def found(row, more):
        return torch.cat([step.logp_NV for step in reading.after([0], [(row, more)])[0]])

    torch.testing.assert_close(found([], [3, 4]), want([1, 2], [1, 2, 3], [1, 2, 3, 4]))
    reading.forget([1])
    torch.testing.assert_close(found([3, 0], []), want([1, 2, 3, 0]))
    reading.forget([7])
    torch.testing.assert_close(found([3, 0, 1, 1], [2]), want([1, 2, 3, 0, 1, 1], [1, 2, 3, 0, 1, 1, 2]))


@dataclass(frozen=True)
class Forward(Abilities):
    vocab_size: int = 3
    context: None = None
    tokenizer: None = None

    def start(self, prompts):
        return STRONG.start(prompts)

    def step(self, state: TableState, tokens_N):
        return STRONG.step(state, tokens_N)


@dataclass(frozen=True)
class Fancy:
    """A pick whose law nobody knows."""

    def draw(self, scores_NV, step, rng: list[Random]):
        return scores_NV.argmax(-1)


def test_what_cannot_be_checked_is_refused():
    assert Forward().rewindable is None
    with pytest.raises(TypeError, match="the draft, a Forward, cannot"):
        Speculative(Forward())
    with pytest.raises(TypeError, match="the model, a Forward, cannot"):
        generate(Forward(), [0], Speculative(DRAFT))
    with pytest.raises(TypeError, match="the model, a Contrast, cannot"):
        generate(Contrast(STRONG, Forward()), [0], Speculative(DRAFT))
    with pytest.raises(TypeError, match=r"does not support Fancy\(\)"):
        Speculative(DRAFT, Fancy())
    with pytest.raises(ValueError, match="length"):
        Speculative(DRAFT, length=0)
    with pytest.raises(ValueError, match="3 tokens and model 1 has 4"):
        generate(STRONG, [0], Speculative(random_table(4, seed=1)))
    with pytest.raises(ValueError, match="exceed the draft's context, 8"):
        generate(STRONG, [0, 1], Speculative(replace(DRAFT, context=8)), max_new_tokens=7)
    assert len(generate(STRONG, [0, 1], Speculative(replace(DRAFT, context=8)), max_new_tokens=6).tokens) == 6


def test_repr_is_the_call():
    assert repr(Speculative(DRAFT)) == f"Speculative({DRAFT!r}, length=4)"
    assert repr(Speculative(PromptLookup())) == "Speculative(PromptLookup(longest=3, shortest=2), length=4)"
    assert repr(Speculative(DRAFT, ArgMax(), length=2)) == f"Speculative({DRAFT!r}, ArgMax(), length=2)"
    assert Speculative(DRAFT, Multinomial()) == Speculative(DRAFT) != Speculative(DRAFT, length=5)


def test_alternatives_are_those_of_sampling():
    rules = (Temperature(0.7),)
    out = generate(LARGE, [1, 2], Speculative(SMALL, *rules), seed=3, max_new_tokens=9, alternatives=4)
    assert len(out.ranked) == len(out.tokens) == 9
    want = generate(LARGE, [1, 2, *out.tokens[:-1]], Sample(*rules), max_new_tokens=1, alternatives=4)
    found, wanted = out.ranked[-1], want.ranked[0]
    assert [token for token, _ in found.model] == [token for token, _ in wanted.model]
    assert [logp for _, logp in found.drawn] == pytest.approx([logp for _, logp in wanted.drawn], abs=1e-4)


def test_a_loop_is_judged_on_what_was_accepted_and_told():
    circle = bigram([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    out = generate(circle, [0], Speculative(circle, length=4), on_loop="stop", max_new_tokens=99)
    want = generate(circle, [0], Greedy(), on_loop="stop", max_new_tokens=99)
    assert (out.tokens, out.finish_reason, out.loop) == (want.tokens, "loop", want.loop)
    assert out.loop.period == 3
    seen = []

    def note(path, loop):
        seen.append(path.tokens)
        return False

    generate(circle, [0], Speculative(circle, length=4), on_loop=note, max_new_tokens=30)
    assert [len(tokens) for tokens in seen] == list(range(len(seen[0]), 30))


def test_a_penalty_on_logits_is_that_of_greedy_search():
    rules = (RepetitionPenalty(1.6),)
    for prompt in PROMPTS:
        out = generate(LARGE, prompt, Speculative(SMALL, *rules, ArgMax()), max_new_tokens=12)
        assert out.tokens == generate(LARGE, prompt, Greedy(*rules), max_new_tokens=12).tokens


def test_a_language_model_drafts_for_no_encoder_decoder():
    class Answering(TableModel):
        is_encoder_decoder = True

    with pytest.raises(ValueError, match="combine models of one kind"):
        generate(Answering(lambda row: [0.5, 0.5]), [0], Speculative(TableModel(lambda row: [0.5, 0.5])))


def test_speculative_draws_other_texts_than_sample_for_the_same_seed():
    drawn = [
        [generate(LARGE, [1, 2], decoder, seed=seed, max_new_tokens=12).tokens for seed in range(8)]
        for decoder in (Sample(), Speculative(SMALL))
    ]
    assert drawn[0] != drawn[1]  # a seed draws other texts: only their distribution is the same
