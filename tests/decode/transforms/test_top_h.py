import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import TopHLogitsWarper

from unspool.decode.transforms import TopH


def entropies(row):
    """H of the k most probable tokens, renormalised, for every k."""
    p = np.sort(np.exp(np.float64(row)))[::-1]
    p = p[p > 0]
    for k in range(1, len(p) + 1):
        q = p[:k] / p[:k].sum()
        yield -(q * np.log(q)).sum()


def test_by_hand():
    # H = 1.1421; H(q₁) = 0, H(q₂) = H(⅝, ⅜) = 0.6616, H(q₃) = 0.9933.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert TopH(0.4).keeps(p).tolist() == [[True, False, False, False]]
    assert TopH(0.6).keeps(p).tolist() == [[True, True, False, False]]
    assert TopH(0.9).keeps(p).tolist() == [[True, True, True, False]]


def test_one_is_the_identity():
    assert TopH(1.0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


def test_a_bound_that_is_met_exactly_is_met():
    # Uniform over 100: log 10 = ½ log 100, so that ten tokens stay, and of equals the lower ids.
    assert TopH(0.5).keeps(torch.zeros(1, 100))[0].nonzero()[:, 0].tolist() == list(range(10))
    assert TopH(0.5).keeps(torch.zeros(1, 10_000)).sum() == 100


@settings(deadline=None, max_examples=40)
@given(data=st.data(), a=st.floats(0.01, 0.99), b=st.floats(0.01, 1))
def test_the_kept_set_is_the_definition_and_a_larger_alpha_keeps_more(any_scores, data, a, b):
    scores = data.draw(any_scores)
    assert (TopH(min(a, b)).keeps(scores) <= TopH(max(a, b)).keeps(scores)).all()
    for row, count in zip(scores.tolist(), TopH(a).keeps(scores).sum(dim=-1).tolist(), strict=True):
        *_, whole = found = list(entropies(row))
        fitting = [k for k, entropy in enumerate(found, 1) if entropy <= a * whole]
        sure = min(abs(entropy - a * whole) for entropy in found) > 1e-6
        assert not sure or count == max([1, *fitting])


def test_large_vocabularies_keep_the_definition(matrices):
    for name in ("600 plain", "600 cut", "5000 ties", "5000 plain"):
        scores = matrices[name][:14]
        for alpha in (0.4, 0.8):
            kept = TopH(alpha).keeps(scores)
            p = scores.double().softmax(dim=-1)
            q = torch.where(kept, p, 0.0) / torch.where(kept, p, 0.0).sum(dim=-1, keepdim=True)
            entropy = -torch.xlogy(p, p).sum(dim=-1)
            alone = kept.sum(dim=-1) == 1
            assert (alone | (-torch.xlogy(q, q).sum(dim=-1) <= alpha * entropy + 1e-6)).all()


def test_hugging_face_compares_terms_that_are_not_renormalised():
    # h₂ = .3466 + .3612 = .7078 > .6 · 1.1421 = .6853, although H(q₂) = .6616 is within the bound.
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    theirs = TopHLogitsWarper(0.6)(None, p) > -math.inf
    assert theirs.tolist() == [[True, False, False, False]]
    assert TopH(0.6).keeps(p).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("alpha", [0, -0.1, 1.1, math.nan])
def test_impossible_alpha_is_refused(alpha):
    with pytest.raises(ValueError, match=r"TopH\.alpha is .*0 < alpha ≤ 1"):
        TopH(alpha)
