import numpy as np
from tests.engine.matmul.test_int8_tiles import packed, product

from unspool.engine.interleaved_formats import GROUP
from unspool.engine.interleaved_matmul import Float32Product
from unspool.engine.weight_formats import SIDE


def test_every_byte_is_its_number():
    numbers = np.concatenate([np.arange(-127, 128), [0]])  # a group of 64 for each of four rows of w
    q = np.zeros((SIDE, GROUP))
    q[:4] = numbers.reshape(4, GROUP)
    y = product(Float32Product(), 8, packed(q, np.ones((SIDE, 1))), np.eye(GROUP, dtype=np.float32)[:8], 1)
    np.testing.assert_array_equal(y, q[:, :8].T)


def test_numbers_of_different_magnitudes_keep_their_precision():
    x = np.full((1, GROUP), 1e-20, np.float32)
    q = np.zeros((SIDE, GROUP))
    x[0, 0], q[2, 1:] = 1e20, 1  # numbers beside a large one keep their precision
    y = product(Float32Product(), 1, packed(q, np.ones((SIDE, 1))), x, 1)
    np.testing.assert_allclose(y[0, 2], 63e-20, rtol=1e-6)
