import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.shortlist import score_cuts
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms import Epsilon, Eta, MinP, TopA, TopK, TopNSigma


def named(value):
    """A test's id must be the same in every process: no addresses."""
    return getattr(value, "__name__", repr(value))


P = torch.tensor([[0.05, 0.5, 0.15, 0.3]])


def kept(rule, how, scores_NV):
    """The token ids that stay, row by row."""
    return [row.nonzero()[:, 0].tolist() for row in how(rule, Shortlist.of(scores_NV)).whole() > -math.inf]


@pytest.mark.parametrize(
    ("rule", "how", "tokens"),
    [
        (TopK(1), score_cuts.top_k, [1]),
        (TopK(3), score_cuts.top_k, [1, 2, 3]),
        (MinP(0.2), score_cuts.min_p, [1, 2, 3]),  # ≥ 0.1
        (MinP(0.5), score_cuts.min_p, [1, 3]),  # ≥ 0.25
        (MinP(0.0), score_cuts.min_p, [0, 1, 2, 3]),
        (MinP(1.0), score_cuts.min_p, [1]),
        (Epsilon(0.1), score_cuts.epsilon, [1, 2, 3]),
        (Epsilon(0.9), score_cuts.epsilon, [1]),
        (Epsilon(0.0), score_cuts.epsilon, [0, 1, 2, 3]),
        # H = 1.1421, e^(−H) = 0.3191: √0.5 · e^(−H) = 0.2257; √0.16 · e^(−H) = 0.1277
        (Eta(0.5), score_cuts.eta, [1, 3]),
        (Eta(0.16), score_cuts.eta, [1, 2, 3]),
        (Eta(0.0), score_cuts.eta, [0, 1, 2, 3]),
        (TopA(0.4), score_cuts.top_a, [1, 2, 3]),  # ≥ 0.1
        (TopA(0.8), score_cuts.top_a, [1, 3]),  # ≥ 0.2
        # log p = −2.996, −0.693, −1.897, −1.204, σ = 0.859: ≥ −1.552, ≥ −2.411
        (TopNSigma(1.0), score_cuts.top_n_sigma, [1, 3]),
        (TopNSigma(2.0), score_cuts.top_n_sigma, [1, 2, 3]),
    ],
    ids=named,
)
def test_by_hand(rule, how, tokens):
    assert kept(rule, how, P.log()) == [tokens]


EVERY = [
    (TopK(2), score_cuts.top_k),
    (MinP(0.3), score_cuts.min_p),
    (Epsilon(0.06), score_cuts.epsilon),
    (Eta(0.1), score_cuts.eta),
    (TopA(0.5), score_cuts.top_a),
    (TopNSigma(1.0), score_cuts.top_n_sigma),
]


@pytest.mark.parametrize(("rule", "how"), EVERY, ids=named)
def test_what_is_cut_stays_cut_and_counts_for_nothing(rule, how):
    scattered = torch.full((1, 7), -math.inf)
    scattered[0, [0, 2, 3, 6]] = P.log()
    ids = [0, 2, 3, 6]
    assert kept(rule, how, scattered) == [[ids[i] for i in kept(rule, how, P.log())[0]]]


@pytest.mark.parametrize(("rule", "how"), EVERY, ids=named)
def test_tied_tokens_are_kept_or_cut_together(rule, how):
    p = torch.tensor([[0.3, 0.1, 0.05, 0.3, 0.1, 0.05, 0.1]])
    (tokens,) = kept(rule, how, p.log())
    assert {0, 3} <= set(tokens)
    assert {1, 4, 6} <= set(tokens) or not {1, 4, 6} & set(tokens)


@settings(deadline=None, max_examples=40)
@given(
    k=st.integers(1, 40),
    vocabulary=st.integers(600, 5000),
    levels=st.integers(1, 10_000),
    seed=st.integers(0, 99),
)
def test_the_floor_of_the_blocks_loses_nothing(k, vocabulary, levels, seed):
    dice = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (3, vocabulary), generator=dice).float() / 100
    # The worst case for blocks: all the best tokens side by side.
    scores[0] = scores[0].sort().values
    scores[1, : vocabulary // 2] = -math.inf
    mask = TopK(k).keeps(scores)
    assert kept(TopK(k), score_cuts.top_k, scores) == [row.nonzero()[:, 0].tolist() for row in mask]


def test_top_k_beyond_what_is_left_keeps_it_and_beyond_the_vocabulary_is_refused():
    assert kept(TopK(4), score_cuts.top_k, torch.tensor([[0.5, 0.0, 0.5, 0.0]]).log()) == [[0, 2]]
    short = score_cuts.top_k(TopK(3), Shortlist.of(torch.arange(500.0)[None]))
    assert score_cuts.top_k(TopK(20), short).tokens[0].tolist() == [497, 498, 499]
    with pytest.raises(ValueError, match="k is 501, but the vocabulary has 500 tokens"):
        score_cuts.top_k(TopK(501), short)


def test_probabilities_too_small_to_be_told_from_nothing_are_no_reason_to_fail():
    scores = torch.tensor([[0.0, -50.0, -200.0, -math.inf]])
    for rule, how in [(MinP(0.0), score_cuts.min_p), (Epsilon(0.0), score_cuts.epsilon)]:
        assert kept(rule, how, scores) == [[0, 1, 2]]
    assert kept(Epsilon(1e-30), score_cuts.epsilon, scores) == [[0, 1]]
