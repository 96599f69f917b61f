"""Cross-attention of a decoder to a source, whose keys and values are computed once and shared by its rows.

    α[h,s] = softmax_s(q_h · k_s / √I),   out_h = Σ_s α[h,s] v_s,   source_attention_s = mean_h α[h,s]

Keys and values of a source are in blocks, like those of self-attention (`kv_cache`); the rows of a beam share
them. Each function is one phase of a step (`threads`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.attention import (
    BLOCK,
    MASKED_SCORE,
    SCORE_FLOATS,
    ZERO,
    AttentionInputs,
    attend,
    heads_per_chunk,
    kv_layout,
    offset_in_block,
    score_block,
    store_heads,
)
from unspool.engine.kernel import INT64_ZERO, kernel
from unspool.engine.memory import floats_at, stack_alloc
from unspool.engine.simd import (
    WIDTH,
    fma,
    load,
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
from unspool.engine.threads import barrier, claim, complete

ONE = np.float32(1)
NO_WINDOW: Any = np.int64(2**40)
"""All of a source is attended to."""
NO_CAP = 0.0
"""Scores are not capped."""
MAX_ROWS_PER_CHUNK = 8
"""Rows of one source in a chunk, at most."""


@kernel
def store_source(shape: Any, reader: int, rows: Any, source: Any, work: Any, queue: Any, phase: int) -> int:
    """Store the keys and values in work.qkv in the blocks, for one layer of the decoder."""
    layout, count = kv_layout(shape.kv_heads, shape.head_width), rows.positions.size
    size = shape.kv_heads * shape.head_width
    n = claim(queue, phase)
    while n < count:
        position = rows.positions[n]
        block = source.starts[rows.sequences[n], position // BLOCK]
        for value in range(2):
            begin = (2 * n + value) * size
            store_heads(work.qkv, begin, layout, value, reader, position, source.kv, block)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _end_of_group(rows: Any, source: Any, n: int) -> int:
    """The end of the group of rows with one source that starts at row n; n if none starts there."""
    starts, sequences = source.starts, rows.sequences
    mine, last = starts[sequences[n], 0], n  # two sources never share a block
    if n % MAX_ROWS_PER_CHUNK and starts[sequences[n - 1], 0] == mine:
        return n
    while last == n or (
        last < sequences.size and last % MAX_ROWS_PER_CHUNK and starts[sequences[last], 0] == mine
    ):
        last += 1
    return last


@kernel
def cross_attention(
    shape: Any, layer: int, rows: Any, source: Any, work: Any, queue: Any, phase: int, threads: int
) -> int:
    """Attention of every head of every row, whose queries are in work.qkv, into work.mixed.

    A chunk is some or all heads of neighbouring rows with one source (those of a beam), so that its keys and
    values stay in the cache.
    """
    H, count, lengths = shape.heads, rows.positions.size, source.lengths
    layout, size = kv_layout(shape.kv_heads, shape.head_width), H * shape.head_width
    # Without relative positions; the arrays given for them are not read.
    inputs = AttentionInputs(
        source.kv, source.starts, rows.sequences, lengths, False, NO_WINDOW, NO_CAP, work.source_scores,
        lengths, rows.positions, INT64_ZERO,
    )  # fmt: skip
    p = floats_at(stack_alloc(SCORE_FLOATS + INT64_ZERO), SCORE_FLOATS)
    each = heads_per_chunk(H, count, threads)
    cuts = H // each
    chunk = claim(queue, phase)
    while chunk < count * cuts:
        n, head = chunk // cuts, chunk % cuts * each
        last = _end_of_group(rows, source, n)
        if last > n:
            some, which = (n, last), (head, head + each)
            attend(layout, H, layer, inputs, work.qkv, size, some, which, p, work.mixed)
        chunk = complete(queue, phase)
    return barrier(queue, phase, count * cuts)


@kernel
def softmax(p: Any, at: int, size: int) -> None:
    """Softmax of p[at : at + size] in place; `size` is a multiple of WIDTH."""
    peak = load(p, at)
    for i in range(WIDTH, size, WIDTH):
        peak = vmax(load(p, at + i), peak)
    shift, summed = splat(-vmax_element(peak)), splat(ZERO)
    for i in range(0, size, WIDTH):
        mass = vexp(vadd(load(p, at + i), shift))
        store(p, at + i, mass)
        summed = vadd(summed, mass)
    norm = splat(vsum(summed))
    for i in range(at, at + size, WIDTH):
        store(p, i, vdiv(load(p, i), norm))


@kernel
def source_attention(
    shape: Any, layer: int, rows: Any, source: Any, work: Any, outputs: Any, queue: Any, phase: int
) -> int:
    """Write outputs.source_attention of each row, 0 behind the end of its source."""
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    count = rows.positions.size
    width = outputs.source_attention.size // count
    scale, share = splat(ONE / np.sqrt(np.float32(I))), splat(ONE / np.float32(H))
    lowest, nothing = splat(MASKED_SCORE), splat(ZERO)
    n = claim(queue, phase)
    while n < count:
        at, length = n * width, source.lengths[rows.sequences[n]]
        starts = source.starts[rows.sequences[n]]
        filled = (length + WIDTH - 1) // WIDTH * WIDTH
        for i in range(at, at + width, WIDTH):
            store(outputs.source_attention, i, nothing)
        for head in range(H):
            base = offset_in_block(kv_layout(K, I), layer, head // (H // K), INT64_ZERO)
            for s in range(0, length, BLOCK):
                key = starts[s // BLOCK] + base
                tokens = min(BLOCK, length - s)
                score_block(
                    work.qkv, (n * H + head) * I, source.kv, key, tokens, I, work.source_scores, at + s
                )
            for s in range(0, filled, WIDTH):
                scores = vmul(load(work.source_scores, at + s), scale)
                store(work.source_scores, at + s, select_first(scores, length - s, lowest))
            softmax(work.source_scores, at, filled)
            for s in range(0, filled, WIDTH):
                store(
                    outputs.source_attention,
                    at + s,
                    fma(load(work.source_scores, at + s), share, load(outputs.source_attention, at + s)),
                )
        for s in range(0, filled, WIDTH):
            store(
                outputs.source_attention,
                at + s,
                select_first(load(outputs.source_attention, at + s), length - s, nothing),
            )
        n = complete(queue, phase)
    return barrier(queue, phase, count)
