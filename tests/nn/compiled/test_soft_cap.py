import numba
import numpy as np
import pytest

from unspool.engine.layers import bend


@numba.njit
def bent(z, at, size, scale, cap):
    bend(z, at, size, scale, cap)
    return z


def test_by_hand():
    """c = 2, s = ½: 2 tanh(z/4)."""
    found = bent(np.array([9, 0, 4, -4, 400, 9], np.float32), 1, 4, np.float32(0.5), 2.0)
    np.testing.assert_allclose(found, [9, 0, 1.523188, -1.523188, 2, 9], atol=1e-6)


@pytest.mark.parametrize("size", [1, 16, 37])
def test_scores_stay_below_the_cap_in_their_order_and_small_ones_as_they_are(size):
    z = np.sort(np.random.default_rng(size).normal(size=size).astype(np.float32) * 20)
    found = bent(z.copy(), 0, size, np.float32(1), 30.0)
    np.testing.assert_allclose(found, 30 * np.tanh(z.astype(np.float64) / 30), atol=1e-5)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found) <= 30).all()
    small = z / 1000
    np.testing.assert_allclose(bent(small.copy(), 0, size, np.float32(1), 30.0), small, atol=1e-5)
