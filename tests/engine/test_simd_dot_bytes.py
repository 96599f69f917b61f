import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine.simd import cpu_has
from unspool.engine.simd_bytes import DIGIT_GROUP, DIGIT_RECORD, DIGITS, HAS_VNNI, SCALE, SHIFTS, split_digits


@numba.njit
def _record(x, at, record, to):
    split_digits(x, at, record, to)


def record(x):
    """Digits (64, 3), the lowest first, what their sums begin with, and the scale."""
    record = np.full(DIGIT_RECORD + 2, -77, np.float32)
    _record(np.concatenate([[9e9], x]).astype(np.float32), 1, record, 1)
    assert record[0] == record[-1] == -77  # nothing is written beside it
    words = record[1:-1]
    found = words[:SHIFTS].view(np.int8).reshape(DIGITS, DIGIT_GROUP).T.astype(np.int64)
    return found, words[SHIFTS:SCALE].view(np.int32), words[SCALE]


def test_by_hand():
    x = np.zeros(DIGIT_GROUP)
    x[:4] = 1, -1, 0.5, 1 + 2**-20
    found, begin, scale = record(x)
    # 1 has the exponent 0: it is 2²¹ units, and 2²¹ = 32 · 2¹⁶
    assert scale == 2**-21
    assert found[:4].tolist() == [[0, 0, 32], [0, 0, -32], [0, 0, 16], [2, 0, 32]]
    assert begin.tolist() == [-128 * 2, 0, -128 * (32 - 32 + 16 + 32)]


def test_a_digit_that_does_not_fit_is_carried_over():
    x = np.zeros(DIGIT_GROUP)
    x[0], x[1] = 1, 200 * 2**-21  # 200 = 256 − 56
    assert record(x)[0][1].tolist() == [-56, 1, 0]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-30, 1e-3, 1.0, 77.0, 1e30]), st.floats(0, 8))
def test_digits_are_exact_up_to_a_fraction_of_the_largest_number(seed, size, spread):
    rng = np.random.default_rng(seed)
    x = (size * rng.standard_normal(DIGIT_GROUP) * np.exp(-spread * rng.random(DIGIT_GROUP))).astype(
        np.float32
    )
    found, begin, scale = record(x)
    assert (np.abs(found) <= 128).all()
    restored = found @ [1, 256, 65536] * np.float64(scale)
    assert np.abs(restored - x).max() <= 2.0**-22 * np.abs(x).max()
    np.testing.assert_array_equal(begin, -128 * found.sum(axis=0))


def test_zeros_and_the_smallest_numbers_become_zeros():
    for x in (np.zeros(DIGIT_GROUP), np.full(DIGIT_GROUP, 1e-40), np.full(DIGIT_GROUP, 1e-33)):
        found, _, scale = record(x)
        assert np.abs(found @ [1, 256, 65536] * np.float64(scale)).max() == 0
        assert not np.isnan(scale)


def test_the_largest_numbers():
    largest = np.finfo(np.float32).max
    found, _, scale = record(np.full(DIGIT_GROUP, largest))
    np.testing.assert_allclose(found @ [1, 256, 65536] * np.float64(scale), largest, rtol=2.0**-21)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_nan_makes_every_sum_nan(strange):
    x = np.ones(DIGIT_GROUP)
    x[5] = strange
    assert np.isnan(record(x)[2])


def test_vnni_is_used_if_the_processor_has_it():
    assert cpu_has("avx512vnni") == HAS_VNNI
