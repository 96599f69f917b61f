import numpy as np

from unspool.nn.compiled.attention import BLOCK
from unspool.nn.compiled.block_copies import copy_blocks

WIDTH_OF_HEAD, PARTS = 3, 4


def test_what_is_filled_is_copied_and_nothing_else():
    size = PARTS * BLOCK * WIDTH_OF_HEAD
    kv = np.random.default_rng(0).random(5 * size, np.float32)
    want = kv.copy().reshape(5, PARTS, BLOCK, WIDTH_OF_HEAD)
    want[3, :, :7] = want[0, :, :7]
    want[4] = want[0]
    want[2, :, :1] = want[1, :, :1]
    copy_blocks(kv, size, WIDTH_OF_HEAD, np.array([[0, 3, 7], [0, 4, BLOCK], [1, 2, 1]]))
    np.testing.assert_array_equal(kv.reshape(want.shape), want)
