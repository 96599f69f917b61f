import numba
import numpy as np
import pytest

from unspool.engine.dense_matmul import (
    CHUNK_MULTIPLE,
    MAX_CHUNK_FLOATS,
    TILE_FLOATS,
    Outputs,
    chunk_size,
    product,
)
from unspool.engine.simd import WIDTH


@numba.njit
def multiplied(w, x, first, last, width, shift):
    y = np.full(x.shape[0] * width, np.float32(-77))
    inputs, rows = w.shape[1], x.shape[0]
    product(w.reshape(-1), inputs, x.reshape(-1), rows, Outputs(y, width, shift), first, last)
    return y.reshape(rows, width)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 3), (960, 576), (3072, 576), (49152, 576)])
def test_chunks_are_even_and_long(outputs, inputs, rows, threads):
    size = chunk_size.py_func(outputs, inputs, rows, threads)
    pieces = -(-outputs // size)
    if rows == 1:
        assert chunk_size.py_func(outputs, inputs, rows, 1) == outputs
    assert pieces * size >= outputs
    assert size % CHUNK_MULTIPLE == 0
    assert size * inputs <= (MAX_CHUNK_FLOATS if rows == 1 else TILE_FLOATS) + CHUNK_MULTIPLE * inputs
    assert pieces >= min(threads, outputs // CHUNK_MULTIPLE)


def test_product_by_hand():
    w = np.zeros((5, WIDTH), np.float32)
    w[:, 0] = 1, 2, 3, 4, 5
    x = np.zeros((2, WIDTH), np.float32)
    x[:, 0] = 1, 10
    found = multiplied(w, x, 1, 5, 7, 2)
    np.testing.assert_array_equal(found, [[-77, -77, -77, 2, 3, 4, 5], [-77, -77, -77, 20, 30, 40, 50]])


@pytest.mark.parametrize("rows", [*range(1, 12), 17])
@pytest.mark.parametrize("outputs", [*range(1, 14), 2 * TILE_FLOATS // 512 + 3])
def test_any_number_of_rows_and_of_outputs(rows, outputs):
    rng = np.random.default_rng(rows)
    w = rng.standard_normal((outputs, 512)).astype(np.float32)
    x = rng.standard_normal((rows, 512)).astype(np.float32)
    found = multiplied(w, x, 0, outputs, outputs, 0)
    np.testing.assert_allclose(found, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-4)
    parts = [multiplied(w, x, o, o + 1, outputs, 0)[:, o] for o in range(outputs)]
    np.testing.assert_array_equal(found, np.stack(parts, 1))  # bit-identical in any tile
