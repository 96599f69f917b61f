import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine import truncation
from unspool.engine.sampling_passes import MIN_SCORE, Scratch

from .conftest import new_scratch, pad


@numba.njit
def kth_largest(score, size, k, peak, scratch):
    return truncation.kth_largest(score, size, k, peak, scratch)


@numba.njit
def floors(value, base, whole, below, peak, sigma):
    return (
        truncation.epsilon(value, base, whole)[0],
        truncation.eta(value, base, whole, below)[0],
        truncation.top_a(value, base, whole, peak)[0],
        truncation.min_p(value, peak)[0],
        truncation.top_n_sigma(value, peak, sigma, 0.0)[0],
    )


def test_by_hand():
    # p = 0.05, 0.5, 0.15, 0.3: base log ½, Z = 2, H = 1.1421, m = H − log 2
    base = math.log(0.5)
    epsilon, eta, top_a, min_p, sigma = floors(0.16, base, 2.0, 1.1421 - math.log(2), base, 0.859)
    assert math.exp(epsilon) == pytest.approx(0.16)
    assert math.exp(eta) == pytest.approx(min(0.16, 0.4 * math.exp(-1.1421)))
    assert math.exp(top_a) == pytest.approx(0.16 * 0.25)
    assert math.exp(min_p) == pytest.approx(0.16 * 0.5)
    assert sigma == pytest.approx(base - 0.16 * 0.859)


def test_parameter_0_keeps_everything():
    epsilon, eta, top_a, min_p, _ = floors(0.0, 0.0, 2.0, 1.0, 0.0, 1.0)
    assert epsilon == eta == top_a == min_p == -math.inf


@pytest.mark.parametrize("alive", [1, 7, 300])
def test_ties_are_kept_if_k_exceeds_them(alive):
    scores = np.full(300, -np.inf, np.float32)
    scores[:alive] = 1
    scratch = Scratch(*new_scratch(300))
    scratch.score[:300] = scores
    scratch.near_key[:] = 1e17  # of somebody before
    pad(scratch, 300)
    assert (scores >= kth_largest(scratch.score, 300, 154, np.float32(1), scratch)).sum() == alive


@settings(deadline=None, max_examples=100)
@given(
    size=st.sampled_from([1, 2, 17, 63, 64, 300, 1000, 5000]),
    share=st.floats(0, 1),
    levels=st.sampled_from([1, 5, 10**6]),
    cut=st.sampled_from([0.0, 0.5, 0.99]),
    seed=st.integers(0, 2**30),
)
def test_kth_largest_equals_sorting(size, share, levels, cut, seed):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(levels, size=size) / 3).astype(np.float32)
    scores[rng.random(size) < cut] = -np.inf
    scores[size // 2] = 1
    for k in {1, max(1, int(share * size)), max(1, int(share * size) // 100)}:
        scratch = Scratch(*new_scratch(size))
        scratch.score[:size] = scores
        pad(scratch, size)
        found = kth_largest(scratch.score, size, k, scores.max(), scratch)
        expected = max(np.sort(scores)[-k], MIN_SCORE)
        assert ((scores >= found) == (scores >= expected)).all()
