import itertools

import pytest

from unspool.decode.generate import generate
from unspool.decode.search import Greedy
from unspool.testing import bigram, random_table, trigram

CHAIN = bigram([[0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]])


def test_by_hand():
    out = generate(CHAIN, [0], Greedy(), max_new_tokens=4)
    assert out.tokens == (1, 2, 0, 1)
    assert out.logps == pytest.approx([-0.5108256, -0.5108256, -0.6931472, -0.5108256])
    assert out.scores == out.logps
    assert out.finish_reason == "length"


def test_transforms_come_first():
    def never_one(scores_NV, step, history):
        scores_NV = scores_NV.clone()
        scores_NV[:, 1] = float("-inf")
        return scores_NV

    out = generate(CHAIN, [0], Greedy(never_one), max_new_tokens=2)
    assert out.tokens == (2, 0)
    assert out.scores == pytest.approx([-0.2876821, -0.3364722])  # 0.3/0.4, 0.5/0.7


def test_every_seed_gives_the_same():
    model = random_table(9, seed=0)
    assert generate(model, [1], Greedy(), seed=1).tokens == generate(model, [1], Greedy(), seed=2).tokens


@pytest.mark.parametrize("seed", range(5))
def test_a_trigram_model_repeats_within_v_squared_plus_one_steps(seed):
    V, table = 4, random_table(4, seed=seed).table
    model = trigram(lambda a, b: table((a, b)))
    tokens = [2, 1, *generate(model, [2, 1], Greedy(), max_new_tokens=3 * V * V).tokens]
    pairs = list(itertools.pairwise(tokens))
    first, again = next((pairs.index(p), i) for i, p in enumerate(pairs) if p in pairs[:i])
    assert again <= V * V
    period = again - first
    assert all(tokens[t] == tokens[t - period] for t in range(again + 1, len(tokens)))
