import numpy as np

from unspool.engine.attention import BLOCK
from unspool.engine.kv_cache import copy_blocks

STRIPS = np.array([3, 5, 5, 3, 5, 5])
ENDS = np.cumsum(BLOCK * STRIPS)
SIZE = ENDS[-1]


def strips(kv, block):
    """(BLOCK, width) of every strip."""
    return [strip.reshape(BLOCK, -1) for strip in np.split(kv[block * SIZE : (block + 1) * SIZE], ENDS[:-1])]


def test_only_the_filled_part_of_a_block_is_copied():
    kv = np.random.default_rng(0).random(5 * SIZE, np.float32)
    want = kv.copy()
    copies = [[0, 3, 7], [0, 4, BLOCK], [1, 2, 1]]
    for source, target, tokens in copies:
        for here, there in zip(strips(want, source), strips(want, target), strict=True):
            there[:tokens] = here[:tokens]
    copy_blocks(kv, STRIPS, np.array(copies))
    np.testing.assert_array_equal(kv, want)
