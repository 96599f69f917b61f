import numpy as np
import pytest

from unspool.engine.sampling_passes import BINS, BLOCK, STRIDE, Scratch, rooms
from unspool.engine.simd import WIDTH

from .conftest import laid


@pytest.mark.parametrize("size", [1, WIDTH, STRIDE, STRIDE + 1, 1000])
def test_a_list_is_filled_up_with_tokens_that_weigh_nothing(listed, size):
    room = listed(np.zeros(size, np.float32))
    assert len(room.score) % STRIDE == 0
    assert len(room.score) - size < STRIDE
    assert (room.score[size:] == -np.inf).all()
    assert (room.weight[size:] == 0).all()
    assert (room.score[:size] == 0).all()
    assert (room.weight[:size] == 1).all()


@pytest.mark.parametrize("vocabulary", [1, 255, 256, 5000])
def test_no_two_arrays_of_two_threads_share_a_number(vocabulary):
    memory = rooms(2, vocabulary)
    arrays = [array for row in memory for array in Scratch(*laid(row, vocabulary))]
    filled = -(-vocabulary // STRIDE) * STRIDE
    assert [array.size for array in arrays] == 2 * ([filled] * 6 + [filled // BLOCK + 1, BINS + 1])
    for number, array in enumerate(arrays):
        array[:] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()
        assert memory.ctypes.data <= array.ctypes.data
        assert array.ctypes.data + array.nbytes <= memory.ctypes.data + memory.nbytes
