import numba
import numpy as np

from unspool.engine.simd import WIDTH, load, store, vexp, vmul_sigmoid, vtanh


@numba.njit
def exps(x):
    y = np.empty_like(x)
    for i in range(0, x.size, WIDTH):
        store(y, i, vexp(load(x, i)))
    return y


@numba.njit
def silus(x):
    y = np.empty_like(x)
    for i in range(0, x.size, WIDTH):
        store(y, i, vmul_sigmoid(load(x, i), load(x, i)))
    return y


@numba.njit
def tanhs(x):
    y = np.empty_like(x)
    for i in range(0, x.size, WIDTH):
        store(y, i, vtanh(load(x, i)))
    return y


def test_exp_is_right_to_two_units_in_the_last_place():
    x = np.linspace(-86, 87, 80_000).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(exps(x) - exact) / np.spacing(exact.astype(np.float32))).max() <= 2


def test_exp_of_extremes_and_nan():
    x = np.array([0, -0.0, -np.inf, -1e30, np.inf, 1e30, np.nan, 1], np.float32)
    zero, minus, low, lower, high, higher, nan, one = exps(np.resize(x, 16))[:8]
    assert zero == minus == 1
    assert 0 <= low == lower < 2e-38
    assert 1e38 < high == higher < np.inf
    assert np.isnan(nan)
    assert one == np.float32(np.e)


def test_silu_is_x_times_the_sigmoid():
    x = np.linspace(-20, 20, 800).astype(np.float32)
    exact = x / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(silus(x), exact, rtol=1e-6)


def test_tanh_is_right_and_stays_between_minus_one_and_one():
    x = np.linspace(-12, 12, 8000).astype(np.float32)
    np.testing.assert_allclose(tanhs(x), np.tanh(x.astype(np.float64)), atol=2e-7, rtol=0)
    ends = np.array([-np.inf, -1e30, -100, -0.0, 0, 100, 1e30, np.inf], np.float32)
    told = tanhs(np.resize(ends, WIDTH))  # whole lanes, however wide these are
    np.testing.assert_array_equal(told[:8], [-1, -1, -1, 0, 0, 1, 1, 1])
    assert np.isnan(tanhs(np.full(WIDTH, np.nan, np.float32))).all()
