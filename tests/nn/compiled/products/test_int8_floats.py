import numpy as np
from tests.nn.compiled.products.test_int8_tiles import packed, product

from unspool.engine.int8_matmul import GROUP, SIDE, ByFloats


def test_every_byte_is_its_number():
    numbers = np.concatenate([np.arange(-127, 128), [0]])  # a group of 64 for each of four rows of w
    q = np.zeros((SIDE, GROUP))
    q[:4] = numbers.reshape(4, GROUP)
    y = product(ByFloats(), 8, packed(q, np.ones((SIDE, 1))), np.eye(GROUP, dtype=np.float32)[:8], 1)
    np.testing.assert_array_equal(y, q[:, :8].T)


def test_numbers_that_are_spread_widely_keep_their_own_precision():
    x = np.full((1, GROUP), 1e-20, np.float32)
    q = np.zeros((SIDE, GROUP))
    x[0, 0], q[2, 1:] = 1e20, 1  # what is beside a large number is no less exact
    y = product(ByFloats(), 1, packed(q, np.ones((SIDE, 1))), x, 1)
    np.testing.assert_allclose(y[0, 2], 63e-20, rtol=1e-6)
