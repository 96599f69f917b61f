import numpy as np

from unspool.engine.kv_cache import copy_blocks


def test_blocks_are_copied_in_order():
    size = 37
    kv = np.random.default_rng(0).random(5 * size, np.float32)
    want = kv.reshape(5, size).copy()
    copies = [[0, 3], [0, 4], [1, 2]]
    for source, target in copies:
        want[target] = want[source]
    copy_blocks(kv, size, np.array(copies))
    np.testing.assert_array_equal(kv, want.reshape(-1))
