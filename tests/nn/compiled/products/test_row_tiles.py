import numba
import numpy as np
import pytest

from unspool.engine.dense_matmul import EVEN, LONG, TILE, Outputs, piece_size, product_of
from unspool.engine.dot_products import Singles
from unspool.engine.simd import WIDTH

singles = product_of(Singles(64))


@numba.njit
def multiplied(w, x, first, last, width, shift):
    y = np.full(x.shape[0] * width, np.float32(-77))
    inputs, rows = w.shape[1], x.shape[0]
    even = inputs // WIDTH * WIDTH
    singles(w.reshape(-1), inputs, even, x.reshape(-1), inputs, rows, Outputs(y, width, shift), first, last)
    return y.reshape(rows, width)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 3), (960, 576), (3072, 576), (49152, 576)])
def test_every_thread_has_as_much_to_do_and_long_streams_to_do_it(outputs, inputs, rows, threads):
    size = piece_size.py_func(outputs, inputs, rows, threads)
    pieces = -(-outputs // size)
    if rows == 1:
        assert piece_size.py_func(outputs, inputs, rows, 1) == outputs
    assert pieces * size >= outputs
    assert size % EVEN == 0
    assert size * inputs <= (LONG if rows == 1 else TILE) + EVEN * inputs
    assert pieces >= min(threads, outputs // EVEN)


def test_by_hand_every_output_where_it_belongs():
    w = np.zeros((5, WIDTH), np.float32)
    w[:, 0] = 1, 2, 3, 4, 5
    x = np.zeros((2, WIDTH), np.float32)
    x[:, 0] = 1, 10
    found = multiplied(w, x, 1, 5, 7, 2)
    np.testing.assert_array_equal(found, [[-77, -77, -77, 2, 3, 4, 5], [-77, -77, -77, 20, 30, 40, 50]])


@pytest.mark.parametrize("rows", [*range(1, 12), 17])
@pytest.mark.parametrize("outputs", [*range(1, 14), 2 * TILE // 512 + 3])
def test_any_number_of_rows_and_of_outputs(rows, outputs):
    dice = np.random.default_rng(rows)
    w = dice.standard_normal((outputs, 512)).astype(np.float32)
    x = dice.standard_normal((rows, 512)).astype(np.float32)
    found = multiplied(w, x, 0, outputs, outputs, 0)
    np.testing.assert_allclose(found, x.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-4)
    parts = [multiplied(w, x, o, o + 1, outputs, 0)[:, o] for o in range(outputs)]
    np.testing.assert_array_equal(found, np.stack(parts, 1))  # to the bit, whoever is computed beside it
