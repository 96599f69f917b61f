import math

import numba
import numpy as np
import pytest

from unspool.engine import sampling_passes
from unspool.engine.sampling_passes import BLOCK


@numba.njit
def peak_of(score, size):
    return sampling_passes.best_score(score, size)


@numba.njit
def cooled(score, size, peak, temperature, out):
    sampling_passes.divide_by_temperature(score, size, peak, temperature, out)


@numba.njit
def weigh(score, size, peak, scratch):
    return sampling_passes.compute_weights(score, size, peak, scratch)


@numba.njit
def again(size, scratch):
    return sampling_passes.sum_weights(size, scratch)


@numba.njit
def means(score, size, base, whole, scratch):
    exact = sampling_passes.exact_mean_below(score, size, base)
    return sampling_passes.mean_below(score, size, base, whole, scratch), exact


@numba.njit
def deviation(score, size, peak):
    return sampling_passes.deviation(score, size, peak)


P = np.array([0.05, 0.5, 0.15, 0.3])
H = -sum(p * math.log(p) for p in P)


def test_by_hand(listed):
    scratch = listed(np.log(P).astype(np.float32))
    peak = peak_of(scratch.score, 4)
    assert peak == np.float32(math.log(0.5))
    whole = weigh(scratch.score, 4, peak, scratch)
    np.testing.assert_allclose(scratch.weight[:4], 2 * P, rtol=1e-6)
    assert whole == pytest.approx(2)
    mean, exact = means(scratch.score, 4, peak, whole, scratch)
    assert math.log(whole) + mean == pytest.approx(H)
    assert exact == pytest.approx(mean, rel=sampling_passes.MEAN_BOUND)
    sigma, off = deviation(scratch.score, 4, peak)
    assert sigma == pytest.approx(np.log(P).std(), abs=off)
    cooled(scratch.score, 4, peak, np.float32(0.5), scratch.score)
    np.testing.assert_allclose(scratch.score[:4], 2 * (np.log(P) - math.log(0.5)), atol=1e-6)


@pytest.mark.parametrize("size", [1, 31, BLOCK - 1, BLOCK, BLOCK + 1, 5000])
@pytest.mark.parametrize("spread", [0.1, 3, 40])
def test_weights_and_sums_are_within_their_rounding_bounds(listed, size, spread):
    scores = spread * np.random.default_rng(size).normal(size=size).astype(np.float32)
    scores[size // 2 + 1 :: 3] = -np.inf
    scratch = listed(scores, np.zeros(size))
    peak = peak_of(scratch.score, size)
    assert peak == scores.max()
    exact = np.exp((scores - peak).astype(np.float64))
    whole = weigh(scratch.score, size, peak, scratch)
    assert whole == pytest.approx(exact.sum(), rel=sampling_passes.ROUNDING_BOUND)
    np.testing.assert_allclose(scratch.weight[:size], exact, rtol=sampling_passes.ROUNDING_BOUND, atol=1e-37)
    blocks = range(0, size, BLOCK)
    np.testing.assert_allclose(
        scratch.mass[: len(blocks)],
        [exact[b : b + BLOCK].sum() for b in blocks],
        rtol=sampling_passes.ROUNDING_BOUND,
        atol=1e-35,
    )
    assert again(size, scratch) == whole
    mean = -(exact * np.where(exact > 0, scores - peak, 0)).sum() / exact.sum()
    assert means(scratch.score, size, peak, whole, scratch)[0] == pytest.approx(
        mean, rel=sampling_passes.MEAN_BOUND
    )
    sigma, off = deviation(scratch.score, size, peak)
    assert sigma == pytest.approx(scores[scores > -np.inf].astype(np.float64).std(), abs=off + 1e-12)


@pytest.mark.parametrize("place", [0, 17, 99])
def test_a_nan_score_is_found(listed, place):
    scores = np.zeros(100, np.float32)
    scores[50:] = -np.inf
    scores[place] = np.nan
    assert np.isnan(peak_of(listed(scores, np.zeros(100)).score, 100))


def test_weights_are_as_exact_as_the_rounding_bound(listed):
    """A sample of all float32 between −87 and 0; all 304 million of them were looked at once."""
    least, most = (int(np.float32(x).view(np.uint32)) for x in (-1e-9, -86.9))
    sample = np.arange(least, most, 97, dtype=np.uint32).view(np.float32)[:3_000_000]
    sample[0] = 0
    scratch = listed(sample, np.zeros(len(sample)))
    weigh(scratch.score, len(sample), np.float32(0), scratch)
    exact = np.exp(sample.astype(np.float64))
    assert np.abs(scratch.weight[: len(sample)] / exact - 1).max() < 0.9e-7 < sampling_passes.ROUNDING_BOUND
