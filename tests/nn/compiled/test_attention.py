import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unspool.nn.compiled.attention import BLOCK, Sight, attend, fetch


@numba.njit
def looked(q, kv, starts, sight, head, width):
    out, p = np.full(width, np.float32(9)), np.empty(BLOCK, np.float32)
    attend(q, 0, kv, starts, 0, sight, head, width, p, 0, out, 0)
    return out


def attended(q, kv, starts, since, length, width, cap):
    sight = Sight(since, length, cap, np.empty(0, np.float32), np.empty(0, np.int64), 0, 0)
    return looked(q, kv, starts, sight, 0, width)


def laid_out(k, v):
    """Keys and values in blocks that lie in any order, and where each begins; the rest are no numbers."""
    length, width = k.shape
    blocks = -(-length // BLOCK)
    order = np.random.default_rng(0).permutation(blocks)
    kv = np.full((blocks, 2, BLOCK, width), np.nan, np.float32)  # what is not filled is never looked at
    for t in range(length):
        kv[order[t // BLOCK], :, t % BLOCK] = k[t].numpy(), v[t].numpy()
    return kv.reshape(-1), order * 2 * BLOCK * width


@pytest.mark.parametrize("width", [4, 8, 20, 64])
@pytest.mark.parametrize("length", [1, 7, 16, 17, 33, 70])
def test_it_is_softmax_attention_over_blocks_wherever_they_lie(length, width):
    torch.manual_seed(length)
    q, k, v = torch.randn(1, width), torch.randn(length, width) * 3, torch.randn(length, width)
    want = F.scaled_dot_product_attention(q, k, v)[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), 0, length, width, 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("since", [0, 1, 31, 32, 33, 63, 64, 69])
@pytest.mark.parametrize("cap", [0.0, 0.7])
def test_it_sees_a_window_and_bends_scores_to_a_cap(since, cap):
    torch.manual_seed(since)
    q, k, v = torch.randn(1, 20), torch.randn(70, 20) * 3, torch.randn(70, 20)
    score = q @ k.t() / 20**0.5
    score = cap * torch.tanh(score / cap) if cap else score
    want = (score[:, since:].softmax(-1) @ v[since:])[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), since, 70, 20, cap)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cap", [0.0, 0.7])
@pytest.mark.parametrize("since", [0, 40])
def test_a_number_for_the_distance_is_added_behind_the_cap(since, cap):
    """The query stands at 50 of 70 places; buckets of distances from −99 to 99; the second of three heads."""
    torch.manual_seed(since)
    q, k, v = torch.randn(1, 20), torch.randn(70, 20) * 3, torch.randn(70, 20)
    numbers, buckets = torch.randn(5, 3) * 4, torch.randint(5, (199,))
    score = q @ k.t() / 20**0.5
    score = cap * torch.tanh(score / cap) if cap else score
    score += numbers[buckets[torch.arange(70) - 50 + 99], 1]
    want = (score[:, since:].softmax(-1) @ v[since:])[0].numpy()
    sight = Sight(since, 70, cap, numbers.numpy().reshape(-1), buckets.numpy(), 99 - 50, 3)
    found = looked(q[0].numpy(), *laid_out(k, v), sight, 1, 20)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_what_lies_before_a_window_is_worth_nothing_whatever_it_is():
    """Also where its scores are the highest by far."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 16), torch.randn(40, 16), torch.randn(40, 16)
    k[:37], v[:37] = 1000 * q, 1e6
    want = F.scaled_dot_product_attention(q, k[37:], v[37:])[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), 37, 40, 16, 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_scores_far_apart_are_no_trouble():
    q = np.array([1000, 0, 0, 0], np.float32)
    kv = np.zeros((1, 2, BLOCK, 4), np.float32)
    kv[0, 0, :3, 0] = 1000, -1000, 0
    kv[0, 1, :3, 0] = 5, 6, 7
    found = attended(q, kv.reshape(-1), np.zeros(1, np.int64), 0, 3, 4, 0.0)
    np.testing.assert_array_equal(found, [5, 0, 0, 0])


@numba.njit
def fetched(kv, starts, begin, heads, width, since, length):
    p = np.zeros(BLOCK, np.float32)
    fetch(kv, starts, begin, heads, width, since, length, p, 0)
    return p


def test_all_that_a_layer_has_in_the_blocks_of_a_row_is_read_and_nothing_else():
    """One number of every line of the cache is enough; what is added up tells which."""
    heads, width, tokens = 6, 16, 3
    size = heads * BLOCK * width
    kv = np.full((5, 2, heads, BLOCK, width), np.nan, np.float32)  # blocks, layers
    kv[1, 1], kv[4, 1, :, :tokens] = 1, 2
    starts = np.array([2 * size, 8 * size])
    found = fetched(kv.reshape(-1), starts, size, heads, width, 0, BLOCK + tokens)
    assert found.max() == 2 * heads * tokens  # of the last block
    assert np.isfinite(found).all()
    kv[1] = np.nan
    found = fetched(kv.reshape(-1), starts, size, heads, width, BLOCK + 1, BLOCK + tokens)
    assert found.max() == 2 * heads * tokens  # a block before the window is left alone
