import numba
import numpy as np
import pytest

from unspool.engine.simd import WIDTH, add_to_sums, load, total_of_sums, zero_sums


@numba.njit
def sum_of(x):
    sums = zero_sums()
    for i in range(0, x.size, WIDTH):
        sums = add_to_sums(sums, load(x, i))
    return total_of_sums(sums)


def test_by_hand():
    assert sum_of(np.arange(2 * WIDTH, dtype=np.float32)) == WIDTH * (2 * WIDTH - 1)


def test_small_numbers_are_not_lost_in_a_large_sum():
    x = np.full(1000 * WIDTH, 1e-9, np.float32)
    x[0] = 1
    assert sum_of(x) == pytest.approx(1 + (x.size - 1) * 1e-9, rel=1e-12)
    assert np.float32(1) + x[1] == 1


def test_the_order_of_the_sum_is_that_of_simd():
    x = (10.0 ** np.arange(WIDTH)).astype(np.float32) / 7
    folded = x.astype(np.float64)
    while len(folded) > 1:
        folded = folded[: len(folded) // 2] + folded[len(folded) // 2 :]
    assert sum_of(x) == folded[0]
