import numpy as np
import pytest

from unspool.engine.sampling_passes import BINS, BLOCK, LIST_MULTIPLE, Scratch, scratch_memory
from unspool.engine.simd import WIDTH

from .conftest import lay_out


@pytest.mark.parametrize("size", [1, WIDTH, LIST_MULTIPLE, LIST_MULTIPLE + 1, 1000])
def test_a_list_is_padded_with_tokens_of_weight_0(listed, size):
    scratch = listed(np.zeros(size, np.float32))
    assert len(scratch.score) % LIST_MULTIPLE == 0
    assert len(scratch.score) - size < LIST_MULTIPLE
    assert (scratch.score[size:] == -np.inf).all()
    assert (scratch.weight[size:] == 0).all()
    assert (scratch.score[:size] == 0).all()
    assert (scratch.weight[:size] == 1).all()


@pytest.mark.parametrize("vocabulary", [1, 255, 256, 5000])
def test_scratch_arrays_of_two_threads_do_not_overlap(vocabulary):
    memory = scratch_memory(2, vocabulary)
    arrays = [array for row in memory for array in Scratch(*lay_out(row, vocabulary))]
    filled = -(-vocabulary // LIST_MULTIPLE) * LIST_MULTIPLE
    assert [array.size for array in arrays] == 2 * ([filled] * 6 + [filled // BLOCK + 1, BINS + 1])
    for number, array in enumerate(arrays):
        array[:] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()
        assert memory.ctypes.data <= array.ctypes.data
        assert array.ctypes.data + array.nbytes <= memory.ctypes.data + memory.nbytes
