import math
from collections import Counter

import pytest
from scipy.stats import chisquare

from unspool.decode.generate import generate
from unspool.decode.multinomial import Multinomial
from unspool.decode.picks import ArgMax
from unspool.decode.search import Greedy, Sample
from unspool.interfaces import Abilities
from unspool.testing import TableModel, bigram, random_table


def halve_zero(scores_NV, step, history):
    scores_NV = scores_NV.clone()
    scores_NV[:, 0] -= 0.6931472
    return scores_NV


def cut_below_three_tenths(scores_NV, step, history):
    return scores_NV.masked_fill(scores_NV.exp() < 0.3, float("-inf"))


@pytest.mark.parametrize(
    ("rules", "drawn_from"),
    [
        # 0.4 is halved: (0.25, 0.4375, 0.3125); then 0.25 is cut: 0.4375/0.75, 0.3125/0.75
        ((halve_zero, cut_below_three_tenths), {1: 0.583333, 2: 0.416667}),
        # 0.25 is cut: (0.53333, 0.46667); then the first is halved: 0.26667/0.73333, 0.46667/0.73333
        ((cut_below_three_tenths, halve_zero), {0: 0.363636, 1: 0.636364}),
    ],
)
def test_transforms_apply_in_the_order_written_to_normalised_scores(rules, drawn_from):
    p = [0.4, 0.35, 0.25]
    out = generate(TableModel(lambda row: p), [0], Sample(*rules), max_new_tokens=100, seed=0)
    assert set(out.tokens) == set(drawn_from)
    for token, logp, score in zip(out.tokens, out.logps, out.scores, strict=True):
        assert logp == pytest.approx(math.log(p[token]))
        assert score == pytest.approx(math.log(drawn_from[token]), abs=1e-5)


def test_frequencies_match_the_distribution():
    p = [0.5, 0.2, 0.15, 0.1, 0.05]
    model = TableModel(lambda row: p)
    outs = generate(model, [0], Sample(), max_new_tokens=1, n=4000, seed=7)
    counts = Counter(out.tokens[0] for out in outs)
    assert chisquare([counts[i] for i in range(5)], [4000 * x for x in p]).pvalue > 1e-3


def test_sequences_have_the_chain_rules_probability():
    rows = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.3, 0.3, 0.4]]
    outs = generate(bigram(rows), [0], Sample(), max_new_tokens=2, n=4000, seed=1)
    counts = Counter(out.tokens for out in outs)
    cells = [(i, j) for i in range(3) for j in range(3)]
    expected = [4000 * rows[0][i] * rows[i][j] for i, j in cells]
    assert chisquare([counts[cell] for cell in cells], expected).pvalue > 1e-3


def test_the_same_seed_gives_the_same_text_in_any_company():
    model = random_table(30, seed=5)
    prompts = [[i] for i in range(30)] + [[3, 4]]
    alone = {tuple(p): generate(model, p, Sample(), max_new_tokens=12, seed=9).tokens for p in prompts}
    for order in (prompts, prompts[::-1], prompts[7:9]):
        together = generate(model, order, Sample(), max_new_tokens=12, seed=9)
        assert [out.tokens for out in together] == [alone[tuple(p)] for p in order]


def test_n_samples_differ_and_the_first_ones_stay_the_same():
    model = random_table(30, seed=5)
    eight = generate(model, [3], Sample(), n=8, seed=2, max_new_tokens=10)
    assert len({out.tokens for out in eight}) > 4
    assert [o.tokens for o in eight[:3]] == [
        o.tokens for o in generate(model, [3], Sample(), n=3, seed=2, max_new_tokens=10)
    ]


def test_the_prompt_is_read_once_for_all_samples():
    reads = []
    model = random_table(5, seed=1)

    class Counting(Abilities):
        vocab_size, context, tokenizer = 5, None, None
        step = staticmethod(model.step)

        def start(self, prompts):
            reads.append(len(prompts))
            return model.start(prompts)

    generate(Counting(), [[1], [2]], Sample(), n=6, seed=0, max_new_tokens=2)
    assert reads == [2]


def test_finished_rows_leave_the_batch():
    sizes = []
    inner = random_table(5, seed=1)

    class Counting(Abilities):
        vocab_size, context, tokenizer = 5, 6, None
        start = staticmethod(inner.start)

        def step(self, state, tokens_N):
            sizes.append(len(tokens_N))
            return inner.step(state, tokens_N)

    generate(Counting(), [[1, 1, 1], [2], [3, 3, 3, 3, 3]], Sample(), seed=0, max_new_tokens=50)
    assert sizes == [2, 2, 1, 1]


def test_repr_is_the_call():
    assert repr(Sample()) == "Sample()"
    assert repr(Sample(ArgMax())) == "Sample(ArgMax())"
    assert Sample(Multinomial()) == Sample()
    assert Sample(ArgMax()) != Sample()


def test_argmax_as_the_pick_is_greedy():
    model = random_table(9, seed=2)
    assert generate(model, [1], Sample(ArgMax()), seed=3).tokens == generate(model, [1], Greedy()).tokens


def test_a_pick_in_the_middle_is_refused():
    with pytest.raises(TypeError, match="only Sample accepts, as its last argument"):
        Sample(ArgMax(), Multinomial())
    with pytest.raises(TypeError, match=r"0\.9"):
        Sample(0.9)
