import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from unspool.engine.simd import WIDTH, cpu_has
from unspool.engine.simd_bytes import (
    DIGIT_GROUP,
    DIGIT_RECORD,
    DIGITS,
    HAS_VNNI,
    LARGEST,
    SCALE,
    SUMS,
    split_digits,
)

pytestmark = pytest.mark.skipif(
    WIDTH < 16, reason="digits are split in vectors of 16 numbers, only beside VNNI"
)


@numba.njit
def _record(x, at, record, to):
    split_digits(x, at, record, to)


def record(x):
    """Digits (64, 2), the lower first, the sums of numbers, and the scale."""
    record = np.full(DIGIT_RECORD + 2, -77, np.float32)
    _record(np.concatenate([[9e9], x]).astype(np.float32), 1, record, 1)
    assert record[0] == record[-1] == -77  # nothing is written beside it
    words = record[1:-1]
    found = words[:SCALE].view(np.int8).reshape(DIGITS, DIGIT_GROUP).T.astype(np.int64)
    return found, words[SUMS:], words[SCALE]


def test_by_hand():
    x = np.zeros(DIGIT_GROUP)
    x[:4], x[40] = (254, -254, 127, 1), 2
    found, sums, scale = record(x)
    # 254 is 127 · 256 units, and so 1 is 128 of them: 256 − 128
    assert scale == np.float32(254 / LARGEST)
    assert found[:4].tolist() == [[0, 127], [0, -127], [-128, 64], [-128, 1]]
    assert found[40].tolist() == [0, 1]
    first = 63.5 * 256 + 128
    assert sums.tolist() == [first, 0, 256, 0, first, 256, first + 256]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([1e-28, 1e-3, 1.0, 77.0, 1e30]), st.floats(0, 8))
def test_digits_are_exact_up_to_a_fraction_of_the_largest_number(seed, size, spread):
    rng = np.random.default_rng(seed)
    x = (size * rng.standard_normal(DIGIT_GROUP) * np.exp(-spread * rng.random(DIGIT_GROUP))).astype(
        np.float32
    )
    found, sums, scale = record(x)
    assert (np.abs(found) <= 128).all()
    a = found @ [1, 256]
    # half a unit, and a rounding to float32 of each of 1 / scale, x / scale and scale
    units = 0.5 + 3 * LARGEST * 2.0**-24
    assert np.abs(a * np.float64(scale) - x).max() <= units * np.abs(x).max() / LARGEST
    quarters, halves = a.reshape(4, -1).sum(axis=1), a.reshape(2, -1).sum(axis=1)
    np.testing.assert_array_equal(sums, [*quarters, *halves, a.sum()])


def test_zeros_and_the_smallest_numbers_become_zeros():
    for x in (np.zeros(DIGIT_GROUP), np.full(DIGIT_GROUP, 1e-40), np.full(DIGIT_GROUP, 1e-33)):
        found, sums, scale = record(x)
        assert not found.any()
        assert not sums.any()
        assert scale == 0


def test_the_largest_numbers():
    largest = np.finfo(np.float32).max
    found, _, scale = record(np.full(DIGIT_GROUP, largest))
    np.testing.assert_allclose(found @ [1, 256] * np.float64(scale), largest, rtol=1e-5)


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_nan_makes_every_sum_nan(strange):
    x = np.ones(DIGIT_GROUP)
    x[5] = strange
    assert np.isnan(record(x)[2])


def test_vnni_is_used_if_the_processor_has_it():
    assert cpu_has("avx512vnni") == HAS_VNNI
