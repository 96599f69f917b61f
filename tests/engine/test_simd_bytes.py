import numba
import numpy as np
import pytest

from unspool.engine import simd_bytes
from unspool.engine.simd import WIDTH, store


@numba.njit
def restored(octets, at):
    y = np.empty((2, WIDTH), np.float32)
    flat = y.reshape(-1)
    store(flat, 0, simd_bytes.float16_to_float32(simd_bytes.load_uint16(octets, at)))
    store(flat, WIDTH, simd_bytes.bfloat16_to_float32(simd_bytes.load_uint16(octets, at)))
    return y


def test_packed_bytes_become_their_numbers_at_any_address():
    octets = np.random.default_rng(0).integers(0, 256, 2 * WIDTH + 5).astype(np.uint8)
    octets[4::2] &= 0x7B  # no infinities in half precision
    halves, bfloats = restored(octets, 3)
    pairs = octets[3 : 3 + 2 * WIDTH].copy()
    np.testing.assert_array_equal(halves, pairs.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(bfloats.view(np.uint32), pairs.view(np.uint16).astype(np.uint32) << 16)


@numba.njit
def converted(octets):
    y = np.empty(WIDTH, np.float32)
    store(y, 0, simd_bytes.float16_to_float32(simd_bytes.load_uint16(octets, 0)))
    return y


@numba.njit
def halved(x):
    y = np.empty(x.size, np.uint16)
    for i in range(x.size):
        y[i] = simd_bytes.float_to_half(x[i])
    return y


@pytest.mark.parametrize("has_f16c", [True, False])
def test_numbers_are_rounded_to_the_nearest_float16(monkeypatch, has_f16c):
    monkeypatch.setattr(simd_bytes, "HAS_F16C", has_f16c and simd_bytes.HAS_F16C)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(4000) * 10.0 ** rng.uniform(-9, 5, 4000)).astype(np.float32)
    ties = np.float32([1 + 2**-11, 1 + 3 * 2**-11, -2049, 2**-25, 3 * 2**-25])
    x = np.concatenate([x, ties, np.float32([0.0, -0.0, 65519, 1e30, -np.inf])])
    want = np.clip(x, -65504, 65504).astype(np.float16)
    found = numba.njit(halved.py_func)(x).view(np.float16)
    np.testing.assert_array_equal(found, want)
    assert np.isnan(numba.njit(halved.py_func)(np.float32([np.nan])).view(np.float16)).all()


def test_float16_is_right_without_f16c(monkeypatch):
    monkeypatch.setattr(simd_bytes, "HAS_F16C", False)
    bits = np.array([0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0xFBFF, 0x3555], np.uint16)
    bits = np.resize(bits, WIDTH)
    found = numba.njit(converted.py_func)(bits.view(np.uint8))
    np.testing.assert_array_equal(found, bits.view(np.float16).astype(np.float32))
