import numba
import numpy as np
import pytest
from tests.engine.matmul.group_products import PRODUCTS

from unspool.engine.interleaved_formats import GROUP, LAYOUTS, WORD_BYTES, group_bytes
from unspool.engine.interleaved_matmul import Float32Product, tile_of
from unspool.engine.weight_formats import INT8, SIDE

CODES_OFFSET, GROUP_BYTES = WORD_BYTES, group_bytes(INT8)


def packed(q, scales):
    """Numbers (16, inputs) and scales (16, groups) as they lie."""
    groups = scales.shape[1]
    w = np.zeros((groups, GROUP_BYTES), np.uint8)
    w[:, :CODES_OFFSET] = np.ascontiguousarray(scales.T.astype("<f4")).view(np.uint8)
    codes = (q + 128).astype(np.uint8).reshape(SIDE, groups, GROUP // 4, 4)
    w[:, CODES_OFFSET:] = codes.transpose(1, 2, 0, 3).reshape(groups, -1)
    return w.reshape(-1)


def product(way, R, w, x, groups):
    """(R, 16) sums, behind a first row that no tile has to touch."""
    prepare, record, tile = way.prepare, way.record, tile_of(R, LAYOUTS[INT8], way)

    @numba.njit
    def call(w, x, y):
        prepared = np.zeros(R * groups * record, np.float32)
        for n in range(R):
            for g in range(groups):
                prepare(x, (n * groups + g) * GROUP, prepared, (n * groups + g) * record)
        tile(
            w,
            0,
            GROUP_BYTES,
            prepared,
            0,
            groups * record,
            groups,
            y,
            SIDE + 3,
            SIDE + 3,
        )

    y = np.full((R + 1, SIDE + 3), np.float32(-77))
    call(w, x.reshape(-1), y.reshape(-1))
    assert (y[0] == -77).all()
    assert (y[:, SIDE:] == -77).all()
    return y[1:, :SIDE]


@pytest.mark.parametrize("way", PRODUCTS, ids=lambda way: type(way).__name__)
def test_by_hand(way):
    q, scales = np.zeros((SIDE, 2 * GROUP)), np.zeros((SIDE, 2))
    q[3, 5], q[3, 64], q[15, 127] = -127, 2, 100
    scales[3], scales[15] = (0.5, 4), (9, 0.25)
    x = np.zeros((2, 2 * GROUP), np.float32)
    x[0, [5, 64, 127]] = 2, -1, 8
    x[1, 127] = 0.5
    y = product(way, 2, packed(q, scales), x, 2)
    want = np.zeros((2, SIDE))
    want[0, 3], want[0, 15], want[1, 15] = 0.5 * -127 * 2 + 4 * 2 * -1, 0.25 * 100 * 8, 0.25 * 100 * 0.5
    np.testing.assert_allclose(y, want, rtol=3e-5, atol=3e-3)


@pytest.mark.parametrize("way", PRODUCTS, ids=lambda way: type(way).__name__)
@pytest.mark.parametrize("R", [1, 2, 3, 4, 8])
def test_any_numbers_alone_and_in_a_batch(way, R):
    rng = np.random.default_rng(R)
    q, scales = (
        rng.integers(-127, 128, (SIDE, 5 * GROUP)),
        rng.uniform(0.001, 0.01, (SIDE, 5)),
    )
    x = rng.standard_normal((R, 5 * GROUP)).astype(np.float32)
    w = packed(q, scales)
    y = product(way, R, w, x, 5)
    exact = x.astype(np.float64) @ (q * scales.astype(np.float32).repeat(GROUP, axis=1)).T
    assert np.abs(y - exact).max() < (1e-6 if isinstance(way, Float32Product) else 3e-5) * np.abs(exact).max()
    for n in range(R):
        np.testing.assert_array_equal(product(way, 1, w, x[n : n + 1], 5), y[n : n + 1])


def test_a_word_has_four_numbers_of_every_row():
    assert CODES_OFFSET + GROUP // 4 * WORD_BYTES == GROUP_BYTES
