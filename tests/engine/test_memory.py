import numba
import numpy as np
import pytest

from unspool.engine.kernel import bytes_at, entry, floats_at, stack_alloc
from unspool.engine.memory import CACHE_LINE_BYTES, MAX_STACK_FLOATS, empty_aligned


@pytest.mark.parametrize("shape", [(3,), (7, 11), (2, 3, 5)])
def test_aligned_arrays_start_at_a_cache_line(shape):
    for _ in range(20):
        made = empty_aligned(*shape)
        assert made.ctypes.data % CACHE_LINE_BYTES == 0
        assert (made.shape, made.dtype, made.flags.c_contiguous) == (shape, np.float32, True)


def test_aligned_arrays_may_be_empty():
    assert empty_aligned(0, 5).shape == (0, 5)


@entry
def sum_at(address, size):
    return floats_at(address, size).sum()


@entry
def last_byte(address, size):
    return bytes_at(address, size)[size - 1]


@entry
def write(address, size):
    floats_at(address, size)[1] = 7


def test_floats_at_reads_and_writes_the_array_at_an_address():
    numbers = np.array([1.5, 2, -0.25], np.float32)
    assert sum_at(numbers.ctypes.data, 3) == 3.25
    assert sum_at(numbers.ctypes.data, 2) == 3.5
    write(numbers.ctypes.data, 3)
    assert numbers[1] == 7


def test_bytes_at_is_unsigned():
    numbers = np.array([1, -1], np.int8)
    assert last_byte(numbers.ctypes.data, 2) == 255


@numba.njit
def summed(size, times):
    mine = floats_at(stack_alloc(size), size)
    other = floats_at(stack_alloc(size), size)
    for i in range(size):
        mine[i], other[i] = i, -1
    found = mine.sum()
    return found if times == 1 else found + summed(size, times - 1)


def test_stack_memory_is_valid_until_the_kernel_returns():
    assert summed(100, 1) == 4950
    assert summed(100, 3) == 3 * 4950


def test_the_stack_holds_max_stack_floats():
    assert summed(MAX_STACK_FLOATS, 1) > 2.1e9
