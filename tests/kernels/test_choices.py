import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, distance, either, load, lowest, reaching, spread, store


@numba.njit
def places(x, floor):
    found = np.zeros(x.size, np.bool_)
    for i in range(0, x.size, WIDTH):
        bits = reaching(load(x, i), spread(floor))
        while bits:
            found[i + lowest(bits)] = True
            bits &= bits - 1
    return found


@numba.njit
def chosen(x, floor, yes, no):
    out = np.empty((2, WIDTH), np.float32)
    store(out[0], 0, either(load(x, 0), spread(floor), load(yes, 0), load(no, 0)))
    store(out[1], 0, distance(load(yes, 0), load(no, 0)))
    return out


@pytest.mark.parametrize("floor", [-np.inf, -0.5, 0.0, 3.0, np.inf])
def test_the_numbers_at_the_floor_or_above_are_walked_through(floor):
    x = np.random.default_rng(0).normal(size=5 * WIDTH).astype(np.float32)
    x[[3, 7, 9]] = 0, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(places(x, np.float32(floor)), x >= np.float32(floor))


def test_one_of_two_is_chosen_and_how_far_they_are_apart():
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    x[2] = np.nan
    yes, no = np.arange(WIDTH, dtype=np.float32), np.full(WIDTH, 5, np.float32)
    picked, apart = chosen(x, np.float32(0), yes, no)
    np.testing.assert_array_equal(picked, np.where(x >= 0, yes, no))
    np.testing.assert_array_equal(apart, np.abs(yes - no))
