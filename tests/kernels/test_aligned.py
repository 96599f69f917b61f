import numpy as np
import pytest

from unspool.engine.memory import LINE, aligned


@pytest.mark.parametrize("shape", [(3,), (7, 11), (2, 3, 5)])
def test_an_array_begins_with_a_line_of_the_cache(shape):
    for _ in range(20):
        made = aligned(*shape)
        assert made.ctypes.data % LINE == 0
        assert (made.shape, made.dtype, made.flags.c_contiguous) == (shape, np.float32, True)


def test_an_array_may_be_empty():
    assert aligned(0, 5).shape == (0, 5)
