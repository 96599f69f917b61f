import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unspool.nn.compiled.attention import BLOCK, attend, fetch


@numba.njit
def attended(q, kv, starts, length, width):
    out, p = np.full(width, np.float32(9)), np.empty(BLOCK, np.float32)
    attend(q, 0, kv, starts, 0, length, width, p, 0, out, 0)
    return out


@pytest.mark.parametrize("width", [4, 8, 20, 64])
@pytest.mark.parametrize("length", [1, 7, 16, 17, 33, 70])
def test_it_is_softmax_attention_over_blocks_wherever_they_lie(length, width):
    torch.manual_seed(length)
    q, k, v = torch.randn(1, width), torch.randn(length, width) * 3, torch.randn(length, width)
    want = F.scaled_dot_product_attention(q, k, v)[0].numpy()
    blocks = -(-length // BLOCK)
    order = np.random.default_rng(0).permutation(blocks)
    size = 2 * BLOCK * width
    kv = np.full((blocks, 2, BLOCK, width), np.nan, np.float32)  # what is not filled is never looked at
    for t in range(length):
        kv[order[t // BLOCK], :, t % BLOCK] = k[t].numpy(), v[t].numpy()
    found = attended(q[0].numpy(), kv.reshape(-1), order * size, length, width)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_scores_far_apart_are_no_trouble():
    q = np.array([1000, 0, 0, 0], np.float32)
    kv = np.zeros((1, 2, BLOCK, 4), np.float32)
    kv[0, 0, :3, 0] = 1000, -1000, 0
    kv[0, 1, :3, 0] = 5, 6, 7
    found = attended(q, kv.reshape(-1), np.zeros(1, np.int64), 3, 4)
    np.testing.assert_array_equal(found, [5, 0, 0, 0])


@numba.njit
def fetched(kv, starts, begin, heads, width, length):
    p = np.zeros(BLOCK, np.float32)
    fetch(kv, starts, begin, heads, width, length, p, 0)
    return p


def test_all_that_a_layer_has_in_the_blocks_of_a_row_is_read_and_nothing_else():
    """One number of every line of the cache is enough; what is added up tells which."""
    heads, width, tokens = 6, 16, 3
    size = heads * BLOCK * width
    kv = np.full((5, 2, heads, BLOCK, width), np.nan, np.float32)  # blocks, layers
    kv[1, 1], kv[4, 1, :, :tokens] = 1, 2
    found = fetched(kv.reshape(-1), np.array([2 * size, 8 * size]), size, heads, width, BLOCK + tokens)
    assert found.max() == 2 * heads * tokens  # of the last block
    assert np.isfinite(found).all()
