import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TopKLogitsWarper,
)

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import Epsilon, Eta, MinP, PLess, Temperature, TopA, TopK, TopNSigma
from unspool.interfaces import Step

TOP_K_P = torch.tensor([[0.1, 0.4, 0.2, 0.25, 0.05]]).log()


def test_top_k_by_hand():
    assert TopK(1).keeps(TOP_K_P).tolist() == [[False, True, False, False, False]]
    assert TopK(3).keeps(TOP_K_P).tolist() == [[False, True, True, True, False]]


def test_all_that_tie_with_the_last_stay():
    ties = torch.tensor([[0.25, 0.25, 0.4, 0.1]]).log()
    assert TopK(2).keeps(ties).tolist() == [[True, True, True, False]]


def test_as_many_as_there_are_is_the_identity():
    assert TopK(5).keeps(TOP_K_P).all()


def test_more_than_there_are_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"TopK\.k is 6, but the vocabulary has 5 tokens\. Choose k ≤ 5"):
        TopK(6).keeps(TOP_K_P)


def test_cut_tokens_stay_cut():
    assert TopK(3).keeps(torch.tensor([[0.0, -math.inf, -math.inf]])).tolist() == [[True, False, False]]


def test_a_larger_k_keeps_more(matrices):
    for scores in matrices.values():
        ks = [k for k in (1, 2, 7, 50, 300) if k <= scores.shape[1]]
        kept = [TopK(k).keeps(scores) for k in ks]
        for fewer, more in itertools.pairwise(kept):
            assert (fewer <= more).all()


def test_top_k_the_kept_set_is_that_of_hugging_face(matrices):
    for scores in matrices.values():
        for k in (1, 2, 7, 50, 300):
            if k <= scores.shape[1]:
                theirs = TopKLogitsWarper(k)(None, scores) > -math.inf
                assert torch.equal(TopK(k).keeps(scores), theirs)


@pytest.mark.parametrize(
    ("k", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError), (None, TypeError)]
)
def test_impossible_k_is_refused(k, error):
    with pytest.raises(error, match=r"TopK\.k is .* whole number ≥ 1"):
        TopK(k)


def test_min_p_by_hand():
    p = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).log()
    assert MinP(0.1).keeps(p).tolist() == [[True, True, True, False]]
    assert MinP(0.4).keeps(p).tolist() == [[True, True, False, False]]


def test_zero_keeps_all_and_one_the_best():
    p = torch.tensor([[0.4, 0.4, 0.2, 0.0]]).log()
    assert MinP(0).keeps(p).tolist() == [[True, True, True, False]]
    assert MinP(1).keeps(p).tolist() == [[True, True, False, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), m=st.floats(0, 1), n=st.floats(0, 1))
def test_a_larger_m_keeps_less(any_scores, data, m, n):
    scores = data.draw(any_scores)
    assert (MinP(max(m, n)).keeps(scores) <= MinP(min(m, n)).keeps(scores)).all()


@pytest.mark.parametrize("m", [0.01, 0.05, 0.5, 1.0])
def test_min_p_the_kept_set_is_that_of_hugging_face(matrices, m):
    for name, scores in matrices.items():
        theirs = MinPLogitsWarper(m)(None, scores) > -math.inf
        assert torch.equal(MinP(m).keeps(scores), theirs), name


@pytest.mark.parametrize("m", [-0.1, 1.1, math.nan])
def test_impossible_m_is_refused(m):
    with pytest.raises(ValueError, match=r"MinP\.m is .*0 ≤ m ≤ 1"):
        MinP(m)


def test_top_a_by_hand():
    # max p = 0.6: a = 0.5 → 0.18, a = 0.1 → 0.036.
    p = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).log()
    assert TopA(0.5).keeps(p).tolist() == [[True, True, False, False]]
    assert TopA(0.1).keeps(p).all()


def test_top_a_zero_keeps_everything():
    assert TopA(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), a=st.floats(0, 1), b=st.floats(0, 1))
def test_a_larger_a_keeps_less_but_never_less_than_min_p(any_scores, data, a, b):
    scores = data.draw(any_scores)
    assert (TopA(max(a, b)).keeps(scores) <= TopA(min(a, b)).keeps(scores)).all()
    assert (MinP(a).keeps(scores) <= TopA(a).keeps(scores)).all()


def test_the_kept_set_is_the_definition(matrices):
    for name, scores in matrices.items():
        p = scores.softmax(dim=-1)
        wanted = (p >= 0.2 * p.max(dim=-1, keepdim=True).values ** 2) & (scores > -math.inf)
        assert torch.equal(TopA(0.2).keeps(scores), wanted), name


@pytest.mark.parametrize("a", [-0.1, 1.1, math.nan])
def test_impossible_a_is_refused(a):
    with pytest.raises(ValueError, match=r"TopA\.a is .*0 ≤ a ≤ 1"):
        TopA(a)


def test_top_n_sigma_by_hand():
    # Logits 4, 3, 1, 0: mean 2, σ = √2.5 = 1.581.
    logits = torch.tensor([[4.0, 3.0, 1.0, 0.0]])
    assert TopNSigma(0.5).keeps(logits).tolist() == [[True, False, False, False]]
    assert TopNSigma(1).keeps(logits).tolist() == [[True, True, False, False]]
    assert TopNSigma(2).keeps(logits).tolist() == [[True, True, True, False]]
    assert TopNSigma(3).keeps(logits).all()


def test_cut_tokens_count_nowhere():
    whole, holed = torch.tensor([[4.0, 3.0, 1.0, 0.0]]), torch.tensor([[4.0, -math.inf, 3.0, 1.0, 0.0]])
    kept = TopNSigma(1).keeps(holed)
    assert kept.tolist() == [[True, False, True, False, False]]
    assert torch.equal(kept[:, [0, 2, 3, 4]], TopNSigma(1).keeps(whole))


def test_equal_scores_all_stay():
    assert TopNSigma(0.01).keeps(torch.full((1, 5), -1.609)).all()


def test_the_kept_set_is_the_definition_in_double_precision(matrices):
    for name, scores in matrices.items():
        for n in (0.3, 1.0, 2.0):
            for row, kept in zip(scores.double().numpy(), TopNSigma(n).keeps(scores).numpy(), strict=True):
                living = row[np.isfinite(row)]
                slack = n * living.std() - (living.max() - row)
                sure = np.abs(slack) > 1e-5 * (1 + np.abs(living).max())
                assert ((slack >= 0) == kept)[sure].all(), name


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.sampled_from([0.25, 0.5, 2.0, 8.0]), n=st.floats(0.1, 3), m=st.floats(0.1, 3))
def test_temperature_changes_nothing_and_a_larger_n_keeps_more(any_scores, data, t, n, m):
    scores = data.draw(any_scores).double()
    warm = Temperature(t)(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores))
    assert torch.equal(TopNSigma(n).keeps(warm), TopNSigma(n).keeps(scores - scores.amax(-1, keepdim=True)))
    assert (TopNSigma(min(n, m)).keeps(scores) <= TopNSigma(max(n, m)).keeps(scores)).all()


@pytest.mark.parametrize("n", [0, -1, math.nan, math.inf])
def test_impossible_n_is_refused(n):
    with pytest.raises(ValueError, match=r"TopNSigma\.n is .*0 < n"):
        TopNSigma(n)


EPSILON_P = torch.tensor([[0.4, 0.35, 0.2, 0.05]]).log()


def test_epsilon_by_hand():
    assert Epsilon(0.1).keeps(EPSILON_P).tolist() == [[True, True, True, False]]
    assert Epsilon(0.3).keeps(EPSILON_P).tolist() == [[True, True, False, False]]


def test_the_best_stays_however_improbable_with_all_its_ties():
    assert Epsilon(0.9).keeps(EPSILON_P).tolist() == [[True, False, False, False]]
    assert Epsilon(0.9).keeps(torch.tensor([[0.3, 0.4, 0.4]]).log()).tolist() == [[False, True, True]]


def test_epsilon_zero_keeps_everything():
    assert Epsilon(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), e=st.floats(0, 1), f=st.floats(0, 1))
def test_a_larger_epsilon_keeps_less(any_scores, data, e, f):
    scores = data.draw(any_scores)
    assert (Epsilon(max(e, f)).keeps(scores) <= Epsilon(min(e, f)).keeps(scores)).all()


@pytest.mark.parametrize("epsilon", [1e-7, 6e-4, 0.05, 0.5])
def test_epsilon_the_kept_set_is_that_of_hugging_face(matrices, epsilon):
    for name, scores in matrices.items():
        theirs = EpsilonLogitsWarper(epsilon)(None, scores) > -math.inf
        assert torch.equal(Epsilon(epsilon).keeps(scores), theirs), name


@pytest.mark.parametrize("epsilon", [-1e-9, 1.5, math.nan])
def test_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"Epsilon\.epsilon is .*0 ≤ epsilon ≤ 1"):
        Epsilon(epsilon)


def test_eta_by_hand():
    # H = 1.1094 nats, e^(−H) = 0.3298.
    p = torch.tensor([[0.5, 0.25, 0.23, 0.02]]).log()
    # η = 0.04: min(0.04, 0.2 · 0.3298 = 0.066).
    assert Eta(0.04).keeps(p).tolist() == [[True, True, True, False]]
    # η = 0.5: min(0.5, 0.7071 · 0.3298 = 0.2332). Were e^(−H) under the root: 0.406, and only the best stays.
    assert Eta(0.5).keeps(p).tolist() == [[True, True, False, False]]


def test_the_best_stays_with_all_its_ties():
    # Uniform over 4: √1 · e^(−ln 4) = ¼ at η = 1, no less than any token: all are kept.
    assert Eta(1).keeps(torch.zeros(1, 4)).all()
    assert Eta(1).keeps(torch.tensor([[0.3, 0.4, 0.3]]).log()).tolist() == [[False, True, False]]


def test_eta_zero_keeps_everything():
    assert Eta(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), e=st.floats(0, 1), f=st.floats(0, 1))
def test_a_larger_eta_keeps_less(any_scores, data, e, f):
    scores = data.draw(any_scores)
    assert (Eta(max(e, f)).keeps(scores) <= Eta(min(e, f)).keeps(scores)).all()


@pytest.mark.parametrize("eta", [1e-7, 9e-4, 0.05, 0.5])
def test_eta_the_kept_set_is_that_of_hugging_face(matrices, eta):
    for name, scores in matrices.items():
        theirs = EtaLogitsWarper(eta)(None, scores) > -math.inf
        assert torch.equal(Eta(eta).keeps(scores), theirs), name


@pytest.mark.parametrize("eta", [-1e-9, 1.5, math.nan])
def test_impossible_eta_is_refused(eta):
    with pytest.raises(ValueError, match=r"Eta\.eta is .*0 ≤ eta ≤ 1"):
        Eta(eta)


def test_p_less_by_hand():
    # Σp² = .25 + .09 + .0225 + .0025 = .365; norm: (4 · .365 − 1)/3 = .153.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert PLess().keeps(p).tolist() == [[True, False, False, False]]
    assert PLess(norm=True).keeps(p).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("V", [1, 2, 3, 7, 1000, 49_152])
@pytest.mark.parametrize("norm", [False, True])
def test_a_uniform_row_is_kept_whole(V, norm):
    assert PLess(norm).keeps(torch.full((1, V), -math.log(V))).all()


def test_a_certain_token_stays_alone():
    p = torch.tensor([[0.0, -math.inf, -40.0]])
    assert PLess().keeps(p).tolist() == [[True, False, False]]
    assert PLess(norm=True).keeps(p).tolist() == [[True, False, False]]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_the_threshold_is_the_collision_probability_and_norm_is_milder(any_scores, data):
    scores = data.draw(any_scores)
    kept = PLess().keeps(scores)
    assert (kept <= PLess(norm=True).keeps(scores)).all()
    p = scores.double().softmax(dim=-1)
    collision = (p * p).sum(dim=-1, keepdim=True)
    sure = (p - collision).abs() > 1e-6
    assert torch.equal((p > collision)[sure], kept[sure])


def test_norm_is_true_or_false():
    with pytest.raises(TypeError, match=r"PLess\.norm is 0\.5"):
        PLess(0.5)
