import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine import EPSILON, ETA, MIN_P, TOP_A, TOP_K, TOP_N_SIGMA, truncation
from unspool.engine.sampling_passes import MIN_SCORE, Normaliser, Scratch

from .conftest import new_scratch, pad


@numba.njit
def kth_largest(score, size, k, peak, scratch):
    return truncation.kth_largest(score, size, k, peak, scratch)


@numba.njit
def threshold(code, value, score, size, peak, base, total, scratch):
    normaliser = Normaliser(base, total)
    return truncation.score_threshold(code, value, score, size, peak, normaliser, scratch)[0]


@pytest.fixture
def floor(listed):
    """The threshold of a rule for p = 0.05, 0.5, 0.15, 0.3: base log ½, Z = 2, H = 1.1421."""
    scratch = listed(np.log(np.array([0.05, 0.5, 0.15, 0.3])).astype(np.float32))
    scratch.weight[:4] *= 2
    peak = np.float32(math.log(0.5))
    return lambda code, value: threshold(code, value, scratch.score, 4, peak, np.float64(peak), 2.0, scratch)


def test_by_hand(floor):
    assert math.exp(floor(EPSILON, 0.16)) == pytest.approx(0.16)
    assert math.exp(floor(ETA, 0.16)) == pytest.approx(min(0.16, 0.4 * math.exp(-1.1421)), rel=1e-4)
    assert math.exp(floor(TOP_A, 0.16)) == pytest.approx(0.16 * 0.25)
    assert math.exp(floor(MIN_P, 0.16)) == pytest.approx(0.16 * 0.5)
    assert floor(TOP_N_SIGMA, 0.16) == pytest.approx(math.log(0.5) - 0.16 * 0.859, rel=1e-3)
    assert math.exp(floor(TOP_K, 2.0)) == pytest.approx(0.3)


@pytest.mark.parametrize("code", [EPSILON, ETA, TOP_A, MIN_P])
def test_parameter_0_keeps_everything(floor, code):
    assert floor(code, 0.0) == -math.inf


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
