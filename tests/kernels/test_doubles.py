import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, added, load, nothing, summed


@numba.njit
def sum_of(x):
    sums = nothing()
    for i in range(0, x.size, WIDTH):
        sums = added(sums, load(x, i))
    return summed(sums)


def test_by_hand():
    assert sum_of(np.arange(2 * WIDTH, dtype=np.float32)) == WIDTH * (2 * WIDTH - 1)


def test_what_single_precision_would_lose_is_kept():
    x = np.full(1000 * WIDTH, 1e-9, np.float32)
    x[0] = 1
    assert sum_of(x) == pytest.approx(1 + (x.size - 1) * 1e-9, rel=1e-12)
    assert np.float32(1) + x[1] == 1


def test_the_order_is_that_of_lanes():
    x = (10.0 ** np.arange(WIDTH)).astype(np.float32) / 7
    folded = x.astype(np.float64)
    while len(folded) > 1:
        folded = folded[: len(folded) // 2] + folded[len(folded) // 2 :]
    assert sum_of(x) == folded[0]
