import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, add, copy


@numba.njit
def copied(x, at, y, to, size):
    copy(x, at, y, to, size)


@numba.njit
def added(x, at, y, to, size):
    add(x, at, y, to, size)


@pytest.mark.parametrize("size", [0, 1, WIDTH - 1, WIDTH, 3 * WIDTH + 5])
def test_as_numpy_does_it_and_neighbours_are_left_alone(size):
    rng = np.random.default_rng(size)
    x, y = (rng.random(size + 9, np.float32) for _ in range(2))
    want = y.copy()
    want[4 : 4 + size] = x[2 : 2 + size]
    copied(x, 2, y, 4, size)
    np.testing.assert_array_equal(y, want)
    want[1 : 1 + size] += x[7 : 7 + size]
    added(x, 7, y, 1, size)
    np.testing.assert_array_equal(y, want)


def test_one_array_may_be_both():
    x = np.arange(4 * WIDTH, dtype=np.float32)
    added(x, 0, x, 0, x.size)
    np.testing.assert_array_equal(x, 2 * np.arange(4 * WIDTH))
