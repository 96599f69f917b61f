import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unspool.engine.attention import (
    SPAN,
    AttentionInputs,
    KVLayout,
    attend,
    heads_per_chunk,
    kv_layout,
    offset_in_block,
    scratch_floats,
    store_heads,
)
from unspool.engine.attention_tiles import BLOCK

as_a_rule = numba.njit(lambda kv_heads, width: kv_layout(kv_heads, width))


@numba.njit
def run(heads, H, view, q, size, rows, which, out):
    attend(heads, H, 0, view, q, size, rows, which, np.empty(scratch_floats(heads), np.float32), out)


def whole(kv, starts, since, length, cap=0.0, numbers=(), buckets=(), position=0, heads=0):
    """The arguments for one row."""
    one = [np.array([it]) for it in (0, length, position)]
    numbers, buckets = np.array(numbers, np.float32), np.array(buckets, np.int64)
    return AttentionInputs(
        kv, starts[None], one[0], one[1], True, length - since, cap, numbers, buckets, one[2], heads
    )


def seen(q, view, heads):
    """By a single head of keys and of values."""
    out = np.full(heads.value_width, np.float32(9))
    run(heads, 1, view, q, 0, (0, 1), (0, 1), out)
    return out


def attended(q, kv, starts, since, length, width, cap):
    return seen(q, whole(kv, starts, since, length, cap), as_a_rule(1, width))


def laid_out(k, v):
    """Keys, transposed, and values in shuffled blocks, and the offsets of these; the rest is NaN."""
    length, width = k.shape
    blocks = -(-length // BLOCK)
    order = np.random.default_rng(0).permutation(blocks)
    size = BLOCK * (width + v.shape[1])
    kv = np.full((blocks, size), np.nan, np.float32)  # what is not filled is never looked at
    for t in range(length):
        block, place = kv[order[t // BLOCK]], t % BLOCK
        block[: BLOCK * width].reshape(-1, BLOCK)[:, place] = k[t].numpy()
        block[BLOCK * width :].reshape(BLOCK, -1)[place] = v[t].numpy()
    return kv.reshape(-1), order * size


@pytest.mark.parametrize("width", [4, 8, 20, 64])
@pytest.mark.parametrize("length", [1, 7, 16, 17, 33, 70, 128, 129, 300])
def test_it_equals_softmax_attention_for_any_block_table(length, width):
    torch.manual_seed(length)
    q, k, v = torch.randn(1, width), torch.randn(length, width) * 3, torch.randn(length, width)
    want = F.scaled_dot_product_attention(q, k, v)[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), 0, length, width, 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("widths", [(20, 6), (13, 16), (64, 33), (3, 8)])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_keys_and_values_may_have_different_widths_and_any_scale(widths, scale):
    torch.manual_seed(0)
    q, k, v = torch.randn(1, widths[0]), torch.randn(70, widths[0]), torch.randn(70, widths[1])
    want = F.scaled_dot_product_attention(q, k, v, scale=scale)[0].numpy()
    heads = KVLayout(1, widths[0], 1, widths[1], np.float32(scale))
    found = seen(q[0].numpy(), whole(*laid_out(k, v), 0, 70), heads)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("since", [0, 1, 31, 32, 33, 63, 64, 69])
@pytest.mark.parametrize("cap", [0.0, 0.7])
def test_window_and_soft_cap(since, cap):
    torch.manual_seed(since)
    q, k, v = torch.randn(1, 20), torch.randn(70, 20) * 3, torch.randn(70, 20)
    score = q @ k.t() / 20**0.5
    score = cap * torch.tanh(score / cap) if cap else score
    want = (score[:, since:].softmax(-1) @ v[since:])[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), since, 70, 20, cap)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cap", [0.0, 0.7])
@pytest.mark.parametrize("since", [0, 40])
def test_relative_position_bias_is_added_after_the_cap(since, cap):
    """The query stands at 50 of 70 places; buckets of distances from −99 to 99; the second of three heads."""
    torch.manual_seed(since)
    q, k, v = torch.randn(1, 20), torch.randn(70, 20) * 3, torch.randn(70, 20)
    numbers, buckets = torch.randn(5, 3) * 4, torch.randint(5, (199,))
    score = q @ k.t() / 20**0.5
    score = cap * torch.tanh(score / cap) if cap else score
    score += numbers[buckets[torch.arange(70) - 50 + 99], 1]
    want = (score[:, since:].softmax(-1) @ v[since:])[0].numpy()
    heads, out = as_a_rule(3, 20), np.full(60, np.float32(9))
    kv, starts = laid_out(k, v)
    kv = np.concatenate([np.full_like(kv, np.nan), kv, np.full_like(kv, np.nan)]).reshape(
        3, -1, 2 * BLOCK * 20
    )
    kv = kv.swapaxes(0, 1).reshape(-1)  # three heads in a block
    view = whole(kv, 3 * starts, since, 70, cap, numbers.flatten().tolist(), buckets.tolist(), 50, 3)
    run(heads, 3, view, np.concatenate([q[0].numpy()] * 3), 0, (0, 1), (1, 2), out)
    assert (out[:20] == 9).all()
    assert (out[40:] == 9).all()
    found = out[20:40]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_tokens_before_the_window_are_ignored_even_if_nan():
    """Also where its scores are the highest by far."""
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 16), torch.randn(40, 16), torch.randn(40, 16)
    k[:37], v[:37] = 1000 * q, 1e6
    want = F.scaled_dot_product_attention(q, k[37:], v[37:])[0].numpy()
    found = attended(q[0].numpy(), *laid_out(k, v), 37, 40, 16, 0.0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_scores_far_apart_do_not_overflow():
    q = np.array([1000, 0, 0, 0], np.float32)
    kv = np.zeros((2, BLOCK * 4), np.float32)
    kv[0].reshape(4, BLOCK)[0, :3] = 1000, -1000, 0
    kv[1].reshape(BLOCK, 4)[:3, 0] = 5, 6, 7
    found = attended(q, kv.reshape(-1), np.zeros(1, np.int64), 0, 3, 4, 0.0)
    np.testing.assert_array_equal(found, [5, 0, 0, 0])


@numba.njit
def placed(heads, layer, head, value):
    return offset_in_block(heads, layer, head, value)


@pytest.mark.parametrize("kept", [(2, 5, 2, 5), (1, 7, 3, 4), (2, 3, 4, 6)])
def test_keys_and_values_of_a_block_do_not_overlap(kept):
    """Head by head: a key's strip, then those of the values that go with it, and no gap."""
    keys, key_width, values, value_width = kept
    heads, each, at = KVLayout(*kept, np.float32(1)), values // keys, 0
    for layer in range(3):
        for key in range(keys):
            assert placed(heads, layer, key, 0) == at
            at += BLOCK * key_width
            for value in range(key * each, (key + 1) * each):
                assert placed(heads, layer, value, 1) == at
                at += BLOCK * value_width


@numba.njit
def stored(x, at, heads, value, layer, position, kv, block):
    store_heads(x, at, heads, value, layer, position, kv, block)


def test_stored_heads_are_found_by_attention():
    heads = KVLayout(1, 3, 2, 2, np.float32(1))
    kv, x = np.zeros((2, BLOCK * 7), np.float32), np.arange(1, 10, dtype=np.float32)
    memory = kv.reshape(-1)
    stored(x, 1, heads, 0, 1, BLOCK + 4, memory, 0)
    stored(x, 4, heads, 1, 1, BLOCK + 4, memory, 0)
    first, second = 3 * BLOCK, 5 * BLOCK
    assert kv[1, :first].reshape(3, BLOCK)[:, 4].tolist() == [2, 3, 4]
    assert kv[1, first + 8 : first + 10].tolist() == [5, 6]
    assert kv[1, second + 8 : second + 10].tolist() == [7, 8]
    assert np.count_nonzero(kv) == 7


def test_heads_are_stored_as_float16():
    heads = KVLayout(1, 3, 2, 2, np.float32(1), True)
    halves, x = np.zeros((2, BLOCK * 14), np.float16), np.arange(1, 10, dtype=np.float32) / 3
    memory, block = halves.reshape(-1).view(np.float32), BLOCK * 7
    stored(x, 1, heads, 0, 1, BLOCK + 4, memory, block)
    stored(x, 4, heads, 1, 1, BLOCK + 4, memory, block)
    layer = halves[1, BLOCK * 7 :]
    assert layer[: 3 * BLOCK].reshape(3, BLOCK)[:, 4].tolist() == x[1:4].astype(np.float16).tolist()
    assert layer[3 * BLOCK + 8 : 3 * BLOCK + 10].tolist() == x[4:6].astype(np.float16).tolist()
    assert layer[5 * BLOCK + 8 : 5 * BLOCK + 10].tolist() == x[6:8].astype(np.float16).tolist()
    assert np.count_nonzero(halves) == 7


NONE = np.empty(0, np.float32), np.empty(0, np.int64)


def random_cache(rng, count, tokens, width):
    """The cache of `count` sequences with two key heads, and the offsets of their shuffled blocks."""
    blocks = -(-tokens // BLOCK)
    kv = rng.normal(size=count * blocks * 4 * BLOCK * width).astype(np.float32)
    return kv, rng.permutation(count * blocks).reshape(count, -1) * 4 * BLOCK * width


@pytest.mark.parametrize("count", [1, 3, 40])
def test_several_rows_and_heads_are_bit_identical_to_one_at_a_time(count):
    """Sequences of different lengths, up to three spans, and three query heads for each key head."""
    rng = np.random.default_rng(count)
    H, heads, size = 6, as_a_rule(2, 20), 6 * 20 + 7
    lengths = rng.integers(1, 300, count)
    kv, starts = random_cache(rng, count, 300, 20)
    q = rng.normal(size=count * size).astype(np.float32)
    view = AttentionInputs(kv, starts, np.arange(count), lengths, True, 200, 0.0, *NONE, lengths, 0)
    together, alone = (np.full(count * H * 20, np.nan, np.float32) for _ in range(2))
    run(heads, H, view, q, size, (0, count), (0, 2), together)
    for n in range(count):
        for head in range(2):
            run(heads, H, view, q, size, (n, n + 1), (head, head + 1), alone)
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("width", [64, 20])
@pytest.mark.parametrize(("window", "group"), [(1000, 3), (40, 3), (1000, 1), (150, 7), (1000, 50)])
def test_the_rows_of_a_prompt_are_bit_identical_to_single_rows(width, window, group):
    """Row n attends to n + 1 tokens: the rows of a tile have different ends, and with a window starts."""
    rng = np.random.default_rng(0)
    rows, first, H = 23, SPAN - 9, 2 * group
    kv, starts = random_cache(rng, 1, SPAN + 32, width)
    q = rng.normal(size=rows * H * width).astype(np.float32)
    lengths = np.arange(first, first + rows)
    sequences = np.zeros(rows, np.int64)
    view = AttentionInputs(kv, starts, sequences, lengths, True, window, 0.0, *NONE, lengths, 0)
    together, alone = (np.full(rows * H * width, np.nan, np.float32) for _ in range(2))
    run(as_a_rule(2, width), H, view, q, H * width, (0, rows), (0, 2), together)
    for n in range(rows):
        run(as_a_rule(2, width), H, view, q, H * width, (n, n + 1), (0, 2), alone)
    np.testing.assert_array_equal(together, alone)
    blocks = kv.reshape(-1, 2, 2, BLOCK * width)[starts[0] // (4 * BLOCK * width)]
    k, v = blocks[:, 1, 0].reshape(-1, width, BLOCK).swapaxes(1, 2), blocks[:, 1, 1]
    k, v = k.reshape(-1, width), v.reshape(-1, width)
    for n in (0, rows - 1):
        seen = slice(max(0, lengths[n] - window), lengths[n])
        query = torch.from_numpy(q.reshape(rows, H, width)[n, group:])
        want = F.scaled_dot_product_attention(query, torch.from_numpy(k[seen]), torch.from_numpy(v[seen]))
        found = together.reshape(rows, H, width)[n, group:]
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [1000, 150])
@pytest.mark.parametrize("kept", [(2, 20, 2, 20), (1, 33, 2, 16)])
def test_a_float16_cache_equals_a_float32_cache_of_the_same_numbers(kept, window):
    """Bit by bit, for the rows of a prompt and for single rows."""
    rng = np.random.default_rng(0)
    rows, first, H = 7, SPAN - 3, 6
    size = BLOCK * (kept[0] * kept[1] + kept[2] * kept[3])
    halves = rng.normal(size=10 * size).astype(np.float16)
    starts = rng.permutation(10)[None] * size
    q = rng.normal(size=rows * H * kept[1]).astype(np.float32)
    lengths, sequences = np.arange(first, first + rows), np.zeros(rows, np.int64)
    outs = np.full((3, rows * H * kept[3]), np.nan, np.float32)
    for out, half, step in zip(outs, (False, True, True), (rows, rows, 1), strict=True):
        kv, at = (halves.view(np.float32), starts // 2) if half else (halves.astype(np.float32), starts)
        view = AttentionInputs(kv, at, sequences, lengths, True, window, 0.0, *NONE, lengths, 0)
        for n in range(0, rows, step):
            run(KVLayout(*kept, np.float32(1), half), H, view, q, H * kept[1], (n, n + step), (0, 2), out)
    assert np.isfinite(outs).all()
    np.testing.assert_array_equal(outs[1], outs[0])
    np.testing.assert_array_equal(outs[2], outs[0])


cut = numba.njit(lambda values, rows, threads: heads_per_chunk(values, rows, threads))


@pytest.mark.parametrize(
    ("values", "rows", "threads", "each"), [(8, 1, 1, 8), (8, 1, 2, 1), (8, 3, 2, 1), (8, 4, 2, 8)]
)
def test_heads_are_divided_until_all_threads_have_chunks(values, rows, threads, each):
    assert cut(values, rows, threads) == each
