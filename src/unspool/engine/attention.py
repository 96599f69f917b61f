"""Grouped-query attention of rows to a paged KV cache.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

t runs over all tokens, or over the last tokens of a window. Scores may be soft-capped (`layers.soft_cap`),
and a number for the relative position may be added. The softmax is computed span by span, with a running
maximum m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib: milakov2018online; Dao et al. 2022,
§3.1, papers.bib: dao2022flashattention):
    m′ = max(m, max_t s_t),   z′ = e^(m − m′) z + Σ_t e^(s_t − m′),   o′ = e^(m − m′) o + Σ_t e^(s_t − m′) v_t

Blocks start at the same positions in every sequence, so that the order of these sums depends on the row
alone. For each key head, a layer's block holds the keys (BLOCK, key width) and then the values (BLOCK, value
width) of each value head that belongs to it: usually one, (K, 2, BLOCK, I). In keyless attention, where a
token's input is its key, all value heads belong to the one key head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.engine.dot_products import tile_of
from unspool.engine.kernel import INT64_ZERO, floats_at, inline_kernel, kernel, stack_alloc
from unspool.engine.layers import soft_cap
from unspool.engine.simd import (
    WIDTH,
    copy_floats,
    first_element,
    fma,
    load,
    prefetch,
    scalar_fma,
    select_first,
    splat,
    store,
    vadd,
    vdiv,
    vexp,
    vmax,
    vmax_element,
    vmul,
    vsum,
)
from unspool.engine.step_memory import CacheAndPositions, StepTokens, Workspace
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_table import INPUTS, OUTPUTS, QKV, RELATIVE, WEIGHT, ModelShape

BLOCK = 16
"""Tokens of a block: a multiple of WIDTH, to fill vectors; few, because diverging rows copy one."""
SPAN = 128
"""Tokens whose scores are computed before their values are read, at most: whole blocks."""
MAX_HEADS_PER_PASS = 32
"""Pairs of row and head in one pass, at most."""
MAX_SLOT, NORM_SLOT, RESCALE_SLOT = SPAN, SPAN + 1, SPAN + 2
"""Offsets behind the scores of a row and head: m, z and e^(m − m′)."""
SCORE_STRIDE = SPAN + WIDTH
SCORE_FLOATS = MAX_HEADS_PER_PASS * SCORE_STRIDE
CHUNKS_PER_THREAD = 4
"""Chunks for each thread, if the heads can be divided so."""
CACHE_LINE_FLOATS = 16
"""Floats in a cache line."""
_scores, _half, _quarter = (tile_of(1, C) for C in (WIDTH, WIDTH // 2, WIDTH // 4))
ZERO, ONE, MASKED_SCORE = np.float32(0), np.float32(1), np.float32(-3e38)


class AttentionInputs(NamedTuple):
    """Keys and values that rows attend to, and how their scores are changed."""

    kv: Any
    """All blocks."""
    starts: Any
    """(sequences, blocks): the offset of each block in kv."""
    sequences: Any
    """(rows): the sequence of each row."""
    lengths: Any
    """Tokens to attend to: by row, or by sequence."""
    by_row: bool
    window: int
    """Only so many of these, the last ones."""
    cap: float
    """Soft cap of the scores; 0: none."""
    relative_bias: Any
    """(buckets, heads): added to scores."""
    buckets: Any
    """The bucket of each relative position, 0 in the middle."""
    positions: Any
    """(rows): the position of each row."""
    bias_heads: int
    """Heads of `relative_bias`; 0: nothing is added."""


class KVLayout(NamedTuple):
    """Heads of the keys and values of a layer, and their widths."""

    keys: int
    key_width: int
    values: int
    """Value heads, equally many for each key head."""
    value_width: int
    scale: Any
    """Factor of the scores."""


@inline_kernel
def kv_layout(kv_heads: int, width: int) -> KVLayout:
    """Equally many key and value heads of one width."""
    return KVLayout(kv_heads, width, kv_heads, width, ONE / np.sqrt(np.float32(width)))


@inline_kernel
def self_kv_layout(shape: Any) -> KVLayout:
    """The layout of a model's self-attention."""
    K, I = shape.kv_heads, shape.head_width  # noqa: E741
    keys, width = 1 if shape.keyless else K, shape.width if shape.keyless else I
    return KVLayout(keys, width, K, I, ONE if shape.keyless else ONE / np.sqrt(np.float32(I)))


@inline_kernel
def offset_in_block(layout: KVLayout, layer: int, head: int, value: int) -> int:
    """The offset in a block of a layer's keys of a key head, or, if `value` is 1, values of a value head."""
    each = layout.values // layout.keys
    together = layout.key_width + each * layout.value_width
    if value == 0:
        return (layer * layout.keys + head) * together * BLOCK
    before = layout.key_width + head % each * layout.value_width
    return ((layer * layout.keys + head // each) * together + before) * BLOCK


@inline_kernel
def score_block(q: Any, at: int, k: Any, begin: int, tokens: int, width: int, p: Any, p0: int) -> None:
    """p[p0 : p0 + tokens] = the dot products of q[at …] with the keys from k[begin] on, WIDTH at a time.

    The last keys use a smaller tile, so that fewer unused keys are read from memory.
    """
    even = width // WIDTH * WIDTH
    for t in range(0, tokens, WIDTH):
        key, left = begin + t * width, tokens - t
        if left > WIDTH // 2:
            _scores(k, key, width, q, at, 0, even, p, p0 + t, 1, 0)
        elif left > WIDTH // 4:
            _half(k, key, width, q, at, 0, even, p, p0 + t, 1, 0)
        else:
            _quarter(k, key, width, q, at, 0, even, p, p0 + t, 1, 0)
    for t in range(tokens if even < width else 0):
        for i in range(even, width):
            p[p0 + t] = scalar_fma(q[at + i], k[begin + t * width + i], p[p0 + t])


@inline_kernel
def _add_values(
    v: Any, starts: Any, values: int, start: int, before: int, tokens: int, width: int, p: Any, p0: int,
    out: Any, at: int, fresh: bool, norm: Any,
) -> None:  # fmt: skip
    """out = (rescale · out + Σ_t p_t v_t) / norm over a span from `start` on.

    The first `before` tokens of the span are skipped. If `fresh`, out is uninitialised and counts as 0.
    """
    even, pairs, zeros = width // WIDTH * WIDTH, width // (2 * WIDTH) * 2 * WIDTH, splat(ZERO)
    rescale, divisor = splat(p[p0 + RESCALE_SLOT]), splat(norm)
    for i in range(0, pairs, 2 * WIDTH):  # four sums at once, because each waits for its last step
        j = i + WIDTH
        a = zeros if fresh else vmul(load(out, at + i), rescale)
        b = zeros if fresh else vmul(load(out, at + j), rescale)
        c, d = zeros, zeros
        for block in range(0, tokens, BLOCK):
            begin = starts[(start + block) // BLOCK] + values - block * width
            t, end = max(block, before), min(block + BLOCK, tokens)
            while t + 1 < end:
                one, two, value = splat(p[p0 + t]), splat(p[p0 + t + 1]), begin + t * width
                a, b = fma(one, load(v, value + i), a), fma(one, load(v, value + j), b)
                c, d = fma(two, load(v, value + width + i), c), fma(two, load(v, value + width + j), d)
                t += 2
            if t < end:
                one, value = splat(p[p0 + t]), begin + t * width
                a, b = fma(one, load(v, value + i), a), fma(one, load(v, value + j), b)
        store(out, at + i, vdiv(vadd(a, c), divisor))
        store(out, at + j, vdiv(vadd(b, d), divisor))
    for i in range(pairs, even, WIDTH):
        vector = zeros if fresh else vmul(load(out, at + i), rescale)
        for t in range(before, tokens):
            value = starts[(start + t) // BLOCK] + values + t % BLOCK * width
            vector = fma(splat(p[p0 + t]), load(v, value + i), vector)
        store(out, at + i, vdiv(vector, divisor))
    for i in range(even, width):
        sum_ = ZERO if fresh else out[at + i] * p[p0 + RESCALE_SLOT]
        for t in range(before, tokens):
            value = starts[(start + t) // BLOCK] + values + t % BLOCK * width
            sum_ = scalar_fma(p[p0 + t], v[value + i], sum_)
        out[at + i] = sum_ / norm


@kernel
def read_ahead(
    kv: Any, starts: Any, layout: KVLayout, layer: int, since: int, length: int, p: Any, p0: int
) -> None:
    """Read the keys and values of all heads of a layer in memory order, so that they are in the cache.

    This is several times as fast as reading them in the order in which the heads need them.
    """
    each = layout.values // layout.keys
    for start in range(since // BLOCK * BLOCK, length, BLOCK):
        tokens = min(BLOCK, length - start)
        at = starts[start // BLOCK] + offset_in_block(layout, layer, INT64_ZERO, INT64_ZERO)
        vector = splat(ZERO)
        for strip in range(layout.keys + layout.values):
            width = layout.key_width if strip % (1 + each) == 0 else layout.value_width
            for i in range(at, at + tokens * width, CACHE_LINE_FLOATS):
                vector = vadd(vector, load(kv, i))
            at += BLOCK * width
        store(p, p0, vector)  # unused; without it the compiler would remove the loads


@kernel
def _add_distances(
    inputs: AttentionInputs, n: int, head: int, start: int, before: int, tokens: int, p: Any, p0: int
) -> Any:
    """Add the relative position bias to the scores of a span; their maximum."""
    peak, place = MASKED_SCORE, inputs.buckets.size // 2 - inputs.positions[n] + start
    for t in range(before, tokens):
        p[p0 + t] += inputs.relative_bias[inputs.buckets[place + t] * inputs.bias_heads + head]
        peak = max(peak, p[p0 + t])
    return peak


@inline_kernel
def _softmax_span(
    inputs: AttentionInputs, root: Any, n: int, head: int, start: int, before: int, tokens: int, p: Any,
    p0: int, fresh: bool,
) -> None:  # fmt: skip
    """Replace the scores of a span by e^(s − m′), and store m′, z′ and e^(m − m′) behind them."""
    filled = (tokens + WIDTH - 1) // WIDTH * WIDTH
    if inputs.cap != 0:
        soft_cap(p, p0, filled, root, inputs.cap)
    lowest = splat(MASKED_SCORE)
    peak, scale = lowest, splat(root if inputs.cap == 0 else ONE)
    for t in range(0, filled, WIDTH):  # padding is masked
        scores = select_first(vmul(load(p, p0 + t), scale), tokens - t, lowest)
        scores = select_first(lowest, before - t, scores)
        store(p, p0 + t, scores)
        peak = vmax(peak, scores)
    if inputs.bias_heads:
        peak = splat(_add_distances(inputs, n, head, start, before, tokens, p, p0))
    top, norm = (MASKED_SCORE, ZERO) if fresh else (p[p0 + MAX_SLOT], p[p0 + NORM_SLOT])
    now = max(top, vmax_element(peak))
    shift, summed = splat(-now), splat(ZERO)
    for t in range(0, filled, WIDTH):  # e^MASKED_SCORE does not change a sum
        mass = vexp(vadd(load(p, p0 + t), shift))
        store(p, p0 + t, mass)
        summed = vadd(summed, mass)
    keep = ZERO if fresh else first_element(vexp(splat(top - now)))
    p[p0 + MAX_SLOT], p[p0 + RESCALE_SLOT] = now, keep
    p[p0 + NORM_SLOT] = scalar_fma(norm, keep, vsum(summed))


@inline_kernel
def _visible_range(inputs: AttentionInputs, n: int) -> tuple[int, int]:
    """The range of tokens that row n attends to."""
    length = inputs.lengths[n] if inputs.by_row else inputs.lengths[inputs.sequences[n]]
    return max(length - inputs.window, 0), length


@kernel
def _attend_pass(
    layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, rows: Any, which: Any,
    p: Any, out: Any,
) -> None:  # fmt: skip
    """`attend` for one pass: at most MAX_HEADS_PER_PASS pairs of row and head, whose scores fit into p."""
    (row, last), (low, high), longest = rows, which, INT64_ZERO
    for n in range(row, last):
        since, length = _visible_range(inputs, n)
        longest = max(longest, length - since // BLOCK * BLOCK)
    to_keys, to_values, each = H // layout.keys, H // layout.values, layout.values // layout.keys
    width, begin = layout.value_width, offset_in_block(layout, layer, INT64_ZERO, INT64_ZERO)
    together = (layout.key_width + each * width) * BLOCK
    for stage in range(0, 3 * ((longest + SPAN - 1) // SPAN)):
        span, p0, fresh = stage // 3 * SPAN, INT64_ZERO, stage < 3
        for head in range(low, high):
            mine = head // to_keys
            keys = begin + mine * together
            values = keys + (layout.key_width + (head // to_values - mine * each) * width) * BLOCK
            for n in range(row, last):
                since, length = _visible_range(inputs, n)
                start, starts = since // BLOCK * BLOCK + span, inputs.starts[inputs.sequences[n]]
                tokens, before = min(SPAN, length - start), max(since - start, 0)
                if stage % 3 == 0:
                    at = n * size + head * layout.key_width
                    for t in range(0, tokens, BLOCK):
                        key, some = starts[(start + t) // BLOCK] + keys, min(BLOCK, tokens - t)
                        score_block(q, at, inputs.kv, key, some, layout.key_width, p, p0 + t)
                        for i in range(0, some * width, CACHE_LINE_FLOATS):  # read in the third stage
                            prefetch(inputs.kv, key - keys + values + i)
                elif tokens > 0 and stage % 3 == 1:
                    _softmax_span(inputs, layout.scale, n, head, start, before, tokens, p, p0, fresh)
                elif tokens > 0:
                    norm, to = p[p0 + NORM_SLOT] if start + tokens == length else ONE, (n * H + head) * width
                    _add_values(
                        inputs.kv, starts, values, start, before, tokens, width, p, p0, out, to, fresh, norm
                    )
                p0 += SCORE_STRIDE


@kernel
def attend(
    layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, rows: Any, which: Any,
    p: Any, out: Any,
) -> None:  # fmt: skip
    """Attention of a range of rows and a range of heads: out (rows, H, value width).

    The queries of row n start at q[n · size]; p is a buffer of SCORE_FLOATS. The softmax of a head waits for
    its scores, and the sum of values for the softmax. So three stages (scores, softmax, sum of values) each
    run for several heads: while one waits, others are computed.
    """
    (first_row, last), (low, high) = rows, which
    row_count = min(last - first_row, MAX_HEADS_PER_PASS)
    head_count = MAX_HEADS_PER_PASS // row_count
    for n in range(first_row, last, row_count):
        for head in range(low, high, head_count):
            some, these = (n, min(n + row_count, last)), (head, min(head + head_count, high))
            _attend_pass(layout, H, layer, inputs, q, size, some, these, p, out)


@kernel
def heads_per_chunk(H: int, rows: int, threads: int) -> int:
    """Heads of a row in a chunk: all if there is one thread or there are many rows."""
    each = H
    while each % 2 == 0 and rows * (H // each) < CHUNKS_PER_THREAD * threads and threads > 1:
        each //= 2
    return each if threads == 1 or rows * (H // each) >= CHUNKS_PER_THREAD * threads else 1


@kernel
def prefetch_kv_writes(layout: KVLayout, layer: int, position: int, kv: Any, block: int) -> None:
    """Prefetch the memory to which the keys and values of a position will be written."""
    at, each = block + offset_in_block(layout, layer, INT64_ZERO, INT64_ZERO), layout.values // layout.keys
    for strip in range(layout.keys + layout.values):
        width = layout.key_width if strip % (1 + each) == 0 else layout.value_width
        for i in range(0, width, CACHE_LINE_FLOATS):
            prefetch(kv, at + position % BLOCK * width + i)
        at += BLOCK * width


@kernel
def store_heads(
    x: Any, at: int, layout: KVLayout, value: int, layer: int, position: int, kv: Any, block: int
) -> None:
    """Copy the keys, or, if `value` is 1, the values, from x[at] on to their position in a block."""
    count = layout.values if value else layout.keys
    width = layout.value_width if value else layout.key_width
    for head in range(count):
        to = block + offset_in_block(layout, layer, head, value) + position % BLOCK * width
        copy_floats(x, at + head * width, kv, to, width)


MIN_ROWS_TO_GROUP = 16
"""From so many rows on, a chunk has several of them."""
ROWS_PER_CHUNK = 4
"""Rows of such a chunk."""


@chunk_phase
def _attend_chunks(
    chunk: int, layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, p: Any,
    out: Any, row_count: int, each: int,
) -> None:  # fmt: skip
    count, cuts, sequences = inputs.positions.size, H // each, inputs.sequences
    n, head = chunk // cuts * row_count, chunk % cuts * each
    if count < MIN_ROWS_TO_GROUP and head == 0 and (n == 0 or sequences[n] != sequences[n - 1]):
        since, length = _visible_range(inputs, n)
        read_ahead(inputs.kv, inputs.starts[sequences[n]], layout, layer, since, length, p, INT64_ZERO)
    rows, heads = (n, min(n + row_count, count)), (head, head + each)
    attend(layout, H, layer, inputs, q, size, rows, heads, p, out)


@kernel
def self_attention(
    shape: ModelShape, parts: Any, layer: int, rows: StepTokens, context: CacheAndPositions, work: Workspace,
    queue: Any, phase: int, threads: int,
) -> int:  # fmt: skip
    """The phase of self-attention: every head of every row, into work.mixed.

    If there are many rows, a chunk is several rows with all heads; otherwise it is some heads of one row.
    """
    H, layout, count = shape.heads, self_kv_layout(shape), rows.positions.size
    size, relative = parts[layer, QKV, OUTPUTS], parts[shape.layers, RELATIVE]
    relative_bias = floats_at(relative[WEIGHT], relative[OUTPUTS] * relative[INPUTS])
    inputs = AttentionInputs(
        context.kv, context.starts, rows.sequences, rows.attended, True, context.tables.windows[layer],
        shape.attention_cap, relative_bias, context.tables.buckets, rows.positions, relative[INPUTS],
    )  # fmt: skip
    p = floats_at(stack_alloc(SCORE_FLOATS + INT64_ZERO), SCORE_FLOATS)
    row_count, each = ROWS_PER_CHUNK if count >= MIN_ROWS_TO_GROUP else 1, heads_per_chunk(H, count, threads)
    chunks = (count + row_count - 1) // row_count * (H // each)
    return _attend_chunks(
        queue, phase, chunks, layout, H, layer, inputs, work.qkv, size, p, work.mixed, row_count, each
    )
