import numba
import numpy as np
from numba import carray

from unspool.kernels.stack_memory import MOST, reserve


@numba.njit
def summed(size, times):
    mine = carray(reserve(size), size, np.float32)
    other = carray(reserve(size), size, np.float32)
    for i in range(size):
        mine[i], other[i] = i, -1
    found = mine.sum()
    return found if times == 1 else found + summed(size, times - 1)


def test_memory_is_a_calls_own_until_it_returns():
    assert summed(100, 1) == 4950
    assert summed(100, 3) == 3 * 4950


def test_as_much_as_a_kernel_may_ask_for_is_there():
    assert summed(MOST, 1) > 2.1e9
