import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, ge_mask, load, lowest_bit, select_ge, splat, store, vabs_difference


@numba.njit
def places(x, floor):
    found = np.zeros(x.size, np.bool_)
    for i in range(0, x.size, WIDTH):
        bits = ge_mask(load(x, i), splat(floor))
        while bits:
            found[i + lowest_bit(bits)] = True
            bits &= bits - 1
    return found


@numba.njit
def chosen(x, floor, yes, no):
    out = np.empty((2, WIDTH), np.float32)
    store(out[0], 0, select_ge(load(x, 0), splat(floor), load(yes, 0), load(no, 0)))
    store(out[1], 0, vabs_difference(load(yes, 0), load(no, 0)))
    return out


@pytest.mark.parametrize("floor", [-np.inf, -0.5, 0.0, 3.0, np.inf])
def test_ge_mask_visits_the_numbers_that_reach_the_threshold(floor):
    x = np.random.default_rng(0).normal(size=5 * WIDTH).astype(np.float32)
    x[[3, 7, 9]] = 0, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(places(x, np.float32(floor)), x >= np.float32(floor))


def test_select_and_absolute_difference():
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    x[2] = np.nan
    yes, no = np.arange(WIDTH, dtype=np.float32), np.full(WIDTH, 5, np.float32)
    picked, apart = chosen(x, np.float32(0), yes, no)
    np.testing.assert_array_equal(picked, np.where(x >= 0, yes, no))
    np.testing.assert_array_equal(apart, np.abs(yes - no))
