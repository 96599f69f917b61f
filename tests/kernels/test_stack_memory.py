import numba

from unspool.engine.memory import MAX_STACK_BYTES, floats, reserve


@numba.njit
def summed(size, times):
    mine = floats(reserve(size), size)
    other = floats(reserve(size), size)
    for i in range(size):
        mine[i], other[i] = i, -1
    found = mine.sum()
    return found if times == 1 else found + summed(size, times - 1)


def test_memory_is_a_calls_own_until_it_returns():
    assert summed(100, 1) == 4950
    assert summed(100, 3) == 3 * 4950


def test_as_much_as_a_kernel_may_ask_for_is_there():
    assert summed(MAX_STACK_BYTES, 1) > 2.1e9
