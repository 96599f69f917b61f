import numpy as np
import pytest

from unspool.decode.compiled.row_scratch import STRIDE
from unspool.kernels.lanes import WIDTH


@pytest.mark.parametrize("size", [1, WIDTH, STRIDE, STRIDE + 1, 1000])
def test_a_list_is_filled_up_with_tokens_that_weigh_nothing(listed, size):
    room = listed(np.zeros(size, np.float32))
    assert len(room.score) % STRIDE == 0
    assert len(room.score) - size < STRIDE
    assert (room.score[size:] == -np.inf).all()
    assert (room.weight[size:] == 0).all()
    assert (room.score[:size] == 0).all()
    assert (room.weight[:size] == 1).all()
