"""Cross-attention of a decoder to a source, whose keys and values are computed once and shared by its rows.

    α[h,s] = softmax_s(q_h · k_s / √I),   out_h = Σ_s α[h,s] v_s,   source_attention_s = mean_h α[h,s]

Keys and values of a source are in blocks, like those of self-attention (`kv_cache`); the rows of a beam share
them. Each function is one phase of a step (`threads`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.attention import (
    MASKED_SCORE,
    SCRATCH_FLOATS,
    ZERO,
    AttentionInputs,
    attend,
    heads_per_chunk,
    kv_layout,
    offset_in_block,
    store_heads,
)
from unspool.engine.attention_tiles import BLOCK, score_tile
from unspool.engine.kernel import INT64_ZERO, floats_at, ints_at, kernel, stack_alloc
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
from unspool.engine.step_memory import SourceKV, StepTokens, Workspace
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_table import ModelShape

ONE = np.float32(1)
NO_WINDOW: Any = np.int64(2**40)
"""All of a source is attended to."""
NO_CAP = 0.0
"""Scores are not capped."""
MAX_ROWS_PER_CHUNK = 8
"""Rows of one source in a chunk, at most."""
_score_block = score_tile(1, 1)
INT64_FLOATS: Any = np.int64(2)
"""The size of an int64 in floats, for `stack_alloc`."""


@chunk_phase
def store_source(n: int, shape: ModelShape, reader: int, rows: StepTokens, source: SourceKV, kv: Any) -> None:
    """Store the keys and values of row n of `kv` in the blocks, for one layer of the decoder."""
    layout, size = kv_layout(shape.kv_heads, shape.head_width), shape.kv_heads * shape.head_width
    position = rows.positions[n]
    block = source.starts[rows.sequences[n], position // BLOCK]
    for value in range(2):
        store_heads(kv, (2 * n + value) * size, layout, value, reader, position, source.kv, block)


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


@chunk_phase
def _attend_chunks(
    chunk: int, shape: ModelShape, layer: int, rows: StepTokens, source: SourceKV, inputs: AttentionInputs,
    q: Any, p: Any, out: Any, each: int,
) -> None:  # fmt: skip
    H, cuts = shape.heads, shape.kv_heads // each
    n, head = chunk // cuts, chunk % cuts * each
    last = _end_of_group(rows, source, n)
    if last > n:
        layout, size = kv_layout(shape.kv_heads, shape.head_width), H * shape.head_width
        attend(layout, H, layer, inputs, q, size, (n, last), (head, head + each), p, out)


@kernel
def cross_attention(
    shape: ModelShape, layer: int, rows: StepTokens, source: SourceKV, work: Workspace, queue: Any,
    phase: int, threads: int,
) -> int:  # fmt: skip
    """Attention of every head of every row, whose queries are in work.qkv, into work.mixed.

    A chunk is some or all heads of neighbouring rows with one source (those of a beam), so that its keys and
    values stay in the cache.
    """
    count, lengths = rows.positions.size, source.lengths
    # Without relative positions; the arrays given for them are not read.
    inputs = AttentionInputs(
        source.kv, source.starts, rows.sequences, lengths, False, NO_WINDOW, NO_CAP, work.source_scores,
        lengths, rows.positions, INT64_ZERO,
    )  # fmt: skip
    p = floats_at(stack_alloc(SCRATCH_FLOATS), SCRATCH_FLOATS)
    each = heads_per_chunk(shape.kv_heads, count, threads)
    chunks = count * (shape.kv_heads // each)
    return _attend_chunks(
        queue, phase, chunks, shape, layer, rows, source, inputs, work.qkv, p, work.mixed, each
    )


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


@chunk_phase
def source_attention(
    n: int, shape: ModelShape, layer: int, rows: StepTokens, source: SourceKV, work: Workspace, out: Any
) -> None:
    """Write `StepOutputs.source_attention` of row n to `out`, 0 behind the end of its source."""
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    scores, nothing = work.source_scores, splat(ZERO)
    width, length = out.size // rows.positions.size, source.lengths[rows.sequences[n]]
    at, filled = n * width, (length + WIDTH - 1) // WIDTH * WIDTH
    starts, scale, share = source.starts[rows.sequences[n]], ONE / np.sqrt(np.float32(I)), ONE / np.float32(H)
    for i in range(at, at + width, WIDTH):
        store(out, i, nothing)
    query = ints_at(stack_alloc(INT64_FLOATS), INT64_ZERO + 1)
    for head in range(H):
        query[0] = (n * H + head) * I
        base = offset_in_block(kv_layout(K, I), layer, head // (H // K), INT64_ZERO)
        for s in range(0, length, BLOCK):
            block = s // BLOCK
            _score_block(work.qkv, query, 0, I, source.kv, starts, block, base, scores, at + s, 0)
        for s in range(0, filled, WIDTH):
            scaled = vmul(load(scores, at + s), splat(scale))
            store(scores, at + s, select_first(scaled, length - s, splat(MASKED_SCORE)))
        softmax(scores, at, filled)
        for i in range(at, at + filled, WIDTH):
            store(out, i, fma(load(scores, i), splat(share), load(out, i)))
    for s in range(0, filled, WIDTH):
        store(out, at + s, select_first(load(out, at + s), length - s, nothing))
