import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from unspool.decode.combine import Contrast
from unspool.decode.generate import generate, stream
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.run import Run
from unspool.decode.search import Greedy, Sample
from unspool.decode.search.mbr import MBR, ChrF, TokenF1, rank
from unspool.testing import TableModel, bigram, random_table

LETTERS = "abcde."


@dataclass(frozen=True)
class LetterWatch:
    text: str = ""
    finish_reason: None = None

    def push(self, token):
        return LetterWatch(self.text + LETTERS[token])

    def close(self):
        return self.text


class Letters:
    vocab_size, bos_id, eos_ids = 6, 0, frozenset({5})

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids if i != 5)

    def detokenizer(self, stop=(), after=None):
        return LetterWatch()


@dataclass(frozen=True)
class Scripted:
    """A search that draws the same texts every time, in whatever order they end."""

    texts: tuple[tuple[int, ...], ...]
    streams: bool = True

    def __call__(self, model, job):
        drawn = [
            Hypothesis(path.request, path.sample, path.prompt, self.texts[path.sample], finish_reason="eos")
            for path in job.hypotheses()
        ]
        yield SearchStep(tuple(drawn[:1]), tuple(drawn[:0:-1]))
        yield SearchStep((), tuple(drawn[:1]))


MODEL = random_table(7, seed=3)


def scripted(*texts):
    return MBR(len(texts), Scripted(tuple(map(tuple, texts))), TokenF1())


def test_by_hand():
    # F1: (1 2 3, 1 2 4) = 2/3; (1 2 3, 5 6 4) = 0; (1 2 4, 5 6 4) = 1/3
    decoder = scripted([1, 2, 3], [5, 6, 4], [1, 2, 4])
    out = generate(MODEL, [0], decoder)
    assert out.tokens == (1, 2, 4)
    assert out.total == pytest.approx((2 / 3 + 1 / 3) / 2)
    three = generate(MODEL, [0], decoder, n=3)
    assert [o.tokens for o in three] == [(1, 2, 4), (1, 2, 3), (5, 6, 4)]
    assert [o.total for o in three] == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert out.stats == {"candidates": 3, "different": 3}


def test_a_text_drawn_twice_counts_twice_and_is_answered_once():
    decoder = scripted([1, 1], [2, 3], [1, 4], [2, 3], [2, 2])
    # 2 3 against 1 1, 1 4, 2 3, 2 2: 0 + 0 + 1 + 1/2;   2 2: 0 + 1/2 + 0 + 1/2;   1 1 and 1 4: 1/2 each
    outs = generate(MODEL, [0], decoder, n=5)
    assert [o.tokens for o in outs] == [(2, 3), (2, 2), (1, 1), (1, 4)]
    assert [o.total for o in outs] == pytest.approx([1.5 / 4, 1 / 4, 0.5 / 4, 0.5 / 4])


def test_of_equally_good_texts_the_one_drawn_first_wins():
    assert generate(MODEL, [0], scripted([3], [1], [2])).tokens == (3,)
    assert generate(MODEL, [0], scripted([2], [1], [3])).tokens == (2,)


texts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple), min_size=2, max_size=7)


@given(texts, st.randoms())
def test_the_best_is_the_best_by_exhaustion_and_the_order_of_drawing_moves_no_total(drawn, random):
    job = Job(((0,),), (9,), (0,))
    paths = [Hypothesis(0, i, (0,), tokens, finish_reason="length") for i, tokens in enumerate(drawn)]
    ranked = rank(paths, job, TokenF1())
    means = [
        sum(TokenF1()(h, r) for j, r in enumerate(drawn) if j != i) / (len(drawn) - 1)
        for i, h in enumerate(drawn)
    ]
    assert ranked[0].total == pytest.approx(max(means))
    assert ranked[0].tokens in [h for h, mean in zip(drawn, means, strict=True) if mean > max(means) - 1e-9]
    assert [path.sample for path in ranked] == list(range(len(set(drawn))))
    random.shuffle(paths)
    assert rank(paths, job, TokenF1()) == ranked
    shuffled = [
        Hypothesis(0, i, (0,), tokens, finish_reason="length")
        for i, tokens in enumerate(random.sample(drawn, len(drawn)))
    ]
    totals = {path.tokens: pytest.approx(path.total) for path in ranked}
    assert {path.tokens: path.total for path in rank(shuffled, job, TokenF1())} == totals


def test_the_candidates_are_the_samplers_samples():
    samples = generate(MODEL, [1], Sample(), n=8, seed=5, max_new_tokens=4)
    outs = generate(MODEL, [1], MBR(8), n=8, seed=5, max_new_tokens=4)
    assert sorted(o.tokens for o in outs) == sorted({o.tokens for o in samples})
    by_tokens = {o.tokens: o for o in samples}
    for out in outs:
        assert (out.logps, out.finish_reason) == (
            by_tokens[out.tokens].logps,
            by_tokens[out.tokens].finish_reason,
        )


def test_every_prompt_is_its_own_and_needs_no_company():
    prompts = [[1], [2, 3], [4]]
    together = generate(MODEL, prompts, MBR(6), seed=2, max_new_tokens=5)
    alone = [generate(MODEL, prompt, MBR(6), seed=2, max_new_tokens=5) for prompt in prompts]
    assert [(o.tokens, o.total) for o in together] == [(o.tokens, o.total) for o in alone]


def test_more_samples_find_the_consensus():
    # six of ten texts are a 1, and no other text has as many copies
    model = bigram([[0.0, 0.6, 0.2, 0.2]] * 4)
    first = [generate(model, [0], MBR(64), seed=seed, max_new_tokens=1).tokens for seed in range(5)]
    assert first == [(1,)] * 5


def test_texts_are_compared_as_texts_and_token_ids_without_their_end():
    seen = []

    def utility(hypothesis, reference):
        seen.append(hypothesis)
        return 0.0

    p = [0.3, 0.3, 0.0, 0.0, 0.0, 0.4]
    with_text = TableModel(lambda row: p, tokenizer=Letters())
    generate(with_text, "a", MBR(8, utility=utility), seed=1, max_new_tokens=6)
    assert set(map(type, seen)) == {str}
    assert all(set(text) <= {"a", "b"} for text in seen)
    seen.clear()
    job = Run(with_text, ["a"], max_new_tokens=6, seed=1).job
    bare = Job(job.prompts, job.limits, job.seeds, eos=job.eos)
    *_, last = MBR(8, utility=utility)(with_text, bare)
    assert set(map(type, seen)) == {tuple}
    assert all(5 not in tokens for tokens in seen)
    assert len(last.ended) == 1


def test_chrf_by_hand():
    # letters: P = 1, R = 2/3; pairs: P = 1, R = 1/2; F₂ = 5·P·R / (4·P + R) with P = 1, R = 7/12
    assert ChrF()("ab", "abc") == pytest.approx(100 * 5 * (7 / 12) / (4 + 7 / 12), abs=1e-6)
    assert ChrF()("abc", "abc") == 100
    assert ChrF()("", "") == 100
    assert ChrF()("", "abc") == ChrF()("abc", "xyz") == 0
    # letters abcd, abce: 3/4; words ab cd, ab ce: 1/2
    assert ChrF(char_order=1, word_order=1)("ab cd", "ab ce") == pytest.approx(62.5)


def test_chrf_is_the_default_where_there_is_text():
    model = TableModel(random_table(6, seed=1).table, tokenizer=Letters())
    default = generate(model, "a", MBR(6), seed=1, max_new_tokens=8, n=6)
    named = generate(model, "a", MBR(6, utility=ChrF()), seed=1, max_new_tokens=8, n=6)
    assert [(o.text, o.total) for o in default] == [(o.text, o.total) for o in named]
    assert default[0].total > 1


def test_token_f1():
    assert TokenF1()((1, 1, 2), (1, 2, 2)) == pytest.approx(2 * 2 / 6)
    assert TokenF1()((), ()) == 1
    assert TokenF1()((), (1,)) == 0


def test_a_missing_sacrebleu_is_named_before_the_model_is_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)

    def never(row):
        assert row == (0,), "the model was run"  # (0,) asks for the vocabulary's size
        return [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]

    with pytest.raises(ModuleNotFoundError, match=r"unspool\[evaluate\]"):
        generate(TableModel(never, tokenizer=Letters()), "b", MBR(4))


def test_it_runs_on_a_contrast_and_shows_nothing_before_its_end():
    model = Contrast(random_table(7, seed=1), random_table(7, seed=2))
    out = generate(model, [1], MBR(5), seed=3, max_new_tokens=6)
    pieces = list(stream(model, [1], MBR(5), seed=3, max_new_tokens=6))
    assert [piece.tokens for piece in pieces] == [out.tokens]
    assert not MBR().streams


def test_any_search_may_draw():
    out = generate(MODEL, [1], MBR(3, Greedy()), max_new_tokens=5)
    assert out.tokens == generate(MODEL, [1], Greedy(), max_new_tokens=5).tokens
    assert (out.total, out.stats["different"]) == (1.0, 1)


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(ValueError, match=r"MBR\.samples"):
        MBR(1)
    with pytest.raises(TypeError, match=r"MBR\.utility is 3"):
        MBR(utility=3)
    with pytest.raises(TypeError, match=r"MBR\.sampler"):
        MBR(sampler=Sample)
    with pytest.raises(ValueError, match="n=5 is more than samples=4"):
        generate(MODEL, [1], MBR(4), n=5)
    with pytest.raises(ValueError, match="finite"):
        generate(MODEL, [1], MBR(4, utility=lambda h, r: float("nan")), seed=1)
    with pytest.raises(ValueError, match=r"ChrF\.beta"):
        ChrF(beta=0)


def test_repr_is_the_call():
    assert repr(MBR(4)) == "MBR(samples=4, sampler=Sample(), utility=None)"
    assert repr(MBR(4, utility=ChrF())).endswith("utility=ChrF(char_order=6, word_order=0, beta=2))")
    assert MBR(4, utility=ChrF()) == MBR(4, utility=ChrF()) != MBR(4, utility=TokenF1())
