import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, add_floats, copy_floats


@numba.njit
def copied(x, at, y, to, size):
    copy_floats(x, at, y, to, size)


@numba.njit
def added(x, at, y, to, size):
    add_floats(x, at, y, to, size)


@pytest.mark.parametrize("size", [0, 1, WIDTH - 1, WIDTH, 3 * WIDTH + 5])
def test_copies_and_sums_equal_numpy_and_leave_neighbours_unchanged(size):
    rng = np.random.default_rng(size)
    x, y = (rng.random(size + 9, np.float32) for _ in range(2))
    want = y.copy()
    want[4 : 4 + size] = x[2 : 2 + size]
    copied(x, 2, y, 4, size)
    np.testing.assert_array_equal(y, want)
    want[1 : 1 + size] += x[7 : 7 + size]
    added(x, 7, y, 1, size)
    np.testing.assert_array_equal(y, want)


def test_source_and_target_may_be_one_array():
    x = np.arange(4 * WIDTH, dtype=np.float32)
    added(x, 0, x, 0, x.size)
    np.testing.assert_array_equal(x, 2 * np.arange(4 * WIDTH))
