import numba
import numpy as np
import pytest

from unspool.engine.dot_products import tile_of
from unspool.engine.simd import WIDTH, fma, load, splat, vadd, vsum

GROUP = 4 * WIDTH
ZERO = np.float32(0)
SHAPES = [(1, WIDTH), (4, WIDTH // 4), (2, 3), (1, 1)]
TILES = {shape: tile_of(*shape, GROUP) for shape in SHAPES}


@numba.njit
def one_by_one(w, x, length):
    """A single sum, as the products of one row have it."""
    whole = splat(ZERO)
    for start in range(0, length, GROUP):
        part = splat(ZERO)
        for i in range(start, min(start + GROUP, length), WIDTH):
            part = fma(load(w, i), load(x, i), part)
        whole = vadd(whole, part)
    return vsum(whole)


def tiled(shape, w, x, length):
    """y with a number between any two that are written."""
    tile = TILES[shape]

    @numba.njit
    def run(w, apart, x, between, length, y):
        tile(w, 3 * apart, apart, x, between, between, length, y, 2, 2, 2 * WIDTH)

    y = np.full(shape[0] * 2 * WIDTH + 2, np.nan, np.float32)
    run(w.reshape(-1), w.shape[1], x.reshape(-1), x.shape[1], length, y)
    return y[2:].reshape(-1, 2 * WIDTH)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [0, WIDTH, 3 * WIDTH, 11 * WIDTH])
def test_every_sum_of_a_tile_is_bit_identical_to_a_single_dot_product(shape, length):
    (R, C), rng = shape, np.random.default_rng(length)
    w = rng.normal(size=(3 + C, length + 5)).astype(np.float32)
    x = rng.normal(size=(1 + R, length + 3)).astype(np.float32)
    found = tiled(shape, w, x, length)
    for r in range(R):
        for c in range(C):
            assert found[r, 2 * c] == one_by_one(w[3 + c], x[1 + r], length)
            assert found[r, 2 * c] == pytest.approx(float(w[3 + c, :length] @ x[1 + r, :length]), abs=1e-4)
    assert np.isnan(found[:, 1::2]).all()  # and nothing else was written
    assert np.isnan(found[:, 2 * C :]).all()


def test_by_hand():
    w = np.zeros((3 + WIDTH, WIDTH), np.float32)
    w[3:, 0] = np.arange(WIDTH)
    x = np.ones((2, WIDTH), np.float32)
    np.testing.assert_array_equal(tiled((1, WIDTH), w, x, WIDTH)[0, ::2], np.arange(WIDTH))


def test_neighbouring_results_are_equal():
    R, C = shape = (4, WIDTH // 4)
    tile, rng = tile_of(*shape, GROUP, neighbours=True), np.random.default_rng(1)
    w = rng.normal(size=(3 + C, 5 * WIDTH)).astype(np.float32)
    x = rng.normal(size=(1 + R, 5 * WIDTH)).astype(np.float32)

    @numba.njit
    def run(w, x, size, y, below):
        tile(w, 3 * size, size, x, size, size, size, y, 3, 1, below)

    y = np.full((R, C + 7), np.nan, np.float32)
    run(w.reshape(-1), x.reshape(-1), 5 * WIDTH, y.reshape(-1), C + 7)
    np.testing.assert_array_equal(y[:, 3 : 3 + C], tiled(shape, w, x, 5 * WIDTH)[:, : 2 * C : 2])
    assert np.isnan(y[:, :3]).all()
    assert np.isnan(y[:, 3 + C :]).all()
