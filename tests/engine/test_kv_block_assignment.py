import numpy as np
import pytest

from unspool.engine.attention_tiles import BLOCK
from unspool.engine.kv_cache import assign_blocks

NONE = -1


def owned(blocks, lengths, counts, free):
    """Who has which block then, how many use each, what is to be copied, and how many were too few."""
    blocks = np.array(blocks)
    users = np.bincount(blocks[blocks != NONE], minlength=20)
    copies, found = np.zeros((20, 3), np.int64), np.zeros(2, np.int64)
    assign_blocks(blocks, users, np.array(lengths), np.array(counts), np.array(free, np.int64), copies, found)
    return blocks.tolist(), users, copies[: found[0], :2].tolist(), found[1]


def test_the_last_user_of_a_shared_block_keeps_it():
    after, users, copies, lacking = owned([[3], [3], [5], [3]], [4, 4, 2, 4], [1, 1, 1, 1], [7, 8, 9])
    assert after == [[7], [8], [5], [3]]
    assert copies == [[3, 7], [3, 8]]
    assert (users[[3, 5, 7, 8, 9]] == [1, 1, 1, 1, 0]).all()
    assert lacking == 0


def test_rows_that_do_not_write_keep_shared_blocks():
    after, users, copies, _ = owned([[3], [3], [3]], [4, 4, 4], [1, 0, 1], [7, 8])
    assert after == [[7], [3], [8]]
    assert copies == [[3, 7], [3, 8]]
    assert (users[[3, 7, 8]] == [1, 1, 1]).all()


def test_rows_get_new_blocks_and_full_blocks_stay_shared():
    full = [BLOCK + 2, BLOCK]
    after, users, copies, _ = owned([[3, 4, NONE], [3, NONE, NONE]], full, [2 * BLOCK - 2, 1], [7, 8])
    assert after == [[3, 4, 7], [3, 8, NONE]]
    assert copies == []
    assert (users[[3, 4, 7, 8]] == [2, 1, 1, 1]).all()


@pytest.mark.parametrize("free", [[], [7], [7, 8]])
def test_nothing_changes_if_there_are_too_few_free_blocks(free):
    before = [[3], [3], [3], [NONE]]
    after, users, copies, lacking = owned(before, [4, 4, 4, 0], [1, 1, 1, 1], free)
    assert after == before
    assert users[3] == 3
    assert users.sum() == 3
    assert copies == []
    assert lacking == 3 - len(free)
