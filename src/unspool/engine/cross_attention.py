"""Attention of a decoder's rows to a source, whose keys and values are made once and shared by its rows.

    α[h,s] = softmax_s(q_h · k_s / √I),   out_h = Σ_s α[h,s] v_s,   looked_s = mean_h α[h,s]

A source's keys and values lie in blocks as a row's own past does (`attention`, `pool`): the rows of a beam
have the same ones. Each function is one phase, shared by all threads (`turns`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.attention import (
    BLOCK,
    LOWEST,
    SCRATCH,
    ZERO,
    View,
    alike,
    attend,
    heads_at_a_time,
    in_block,
    keep_heads,
    score_block,
)
from unspool.engine.kernel import NOUGHT, kernel
from unspool.engine.memory import floats, reserve
from unspool.engine.simd import (
    WIDTH,
    exp,
    fma,
    higher,
    highest,
    load,
    only_first,
    over,
    plus,
    spread,
    store,
    times,
    total,
)
from unspool.engine.threads import finish, meet, take

ONE = np.float32(1)
ENDLESS: Any = np.int64(2**40)
"""All of a source is seen."""
UNBENT = 0.0
"""Scores of a source have no cap."""
TOGETHER = 8
"""Rows of one source that one thread takes, at most."""


@kernel
def store_source(shape: Any, reader: int, rows: Any, source: Any, work: Any, turns: Any, phase: int) -> int:
    """Keys and values that stand in work.qkv into the blocks, for one layer of the decoder."""
    heads, count = alike(shape.kv_heads, shape.head_width), rows.positions.size
    size = shape.kv_heads * shape.head_width
    n = take(turns, phase)
    while n < count:
        position = rows.positions[n]
        block = source.starts[rows.sequences[n], position // BLOCK]
        for value in range(2):
            begin = (2 * n + value) * size
            keep_heads(work.qkv, begin, heads, value, reader, position, source.kv, block)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _end_of_group(rows: Any, source: Any, n: int) -> int:
    """Behind the last of the rows that look at one source together with row n; n if it is not the first."""
    starts, sequences = source.starts, rows.sequences
    mine, last = starts[sequences[n], 0], n  # no two sources have a block in common
    if n % TOGETHER and starts[sequences[n - 1], 0] == mine:
        return n
    while last == n or (last < sequences.size and last % TOGETHER and starts[sequences[last], 0] == mine):
        last += 1
    return last


@kernel
def attend_source(
    shape: Any, layer: int, rows: Any, source: Any, work: Any, turns: Any, phase: int, threads: int
) -> int:
    """Every head of every row; its query stands in work.qkv.

    A piece is some heads, or all, of neighbouring rows that look at one source (those of a beam): its keys
    and values then stay in the nearest cache.
    """
    H, count, lengths = shape.heads, rows.positions.size, source.lengths
    heads, size = alike(shape.kv_heads, shape.head_width), H * shape.head_width
    # All of it, with scores as they are: no arrays are looked at for these.
    view = View(
        source.kv, source.starts, rows.sequences, lengths, False, ENDLESS, UNBENT, work.looks, lengths,
        rows.positions, NOUGHT,
    )  # fmt: skip
    p = floats(reserve(SCRATCH + NOUGHT), SCRATCH)
    each = heads_at_a_time(H, count, threads)
    cuts = H // each
    piece = take(turns, phase)
    while piece < count * cuts:
        n, head = piece // cuts, piece % cuts * each
        last = _end_of_group(rows, source, n)
        if last > n:
            some, which = (n, last), (head, head + each)
            attend(heads, H, layer, view, work.qkv, size, some, which, p, work.mixed)
        piece = finish(turns, phase)
    return meet(turns, phase, count * cuts)


@kernel
def softmax(p: Any, at: int, size: int) -> None:
    """p[at : at + size] = softmax, in place; `size` is a multiple of WIDTH."""
    peak = load(p, at)
    for i in range(WIDTH, size, WIDTH):
        peak = higher(load(p, at + i), peak)
    shift, summed = spread(-highest(peak)), spread(ZERO)
    for i in range(0, size, WIDTH):
        mass = exp(plus(load(p, at + i), shift))
        store(p, at + i, mass)
        summed = plus(summed, mass)
    norm = spread(total(summed))
    for i in range(at, at + size, WIDTH):
        store(p, i, over(load(p, i), norm))


@kernel
def look(shape: Any, layer: int, rows: Any, source: Any, work: Any, said: Any, turns: Any, phase: int) -> int:
    """Where each row looks: said.looked, 0 behind the end of its source."""
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    count = rows.positions.size
    width = said.looked.size // count
    scale, share = spread(ONE / np.sqrt(np.float32(I))), spread(ONE / np.float32(H))
    lowest, nothing = spread(LOWEST), spread(ZERO)
    n = take(turns, phase)
    while n < count:
        at, length = n * width, source.lengths[rows.sequences[n]]
        starts = source.starts[rows.sequences[n]]
        filled = (length + WIDTH - 1) // WIDTH * WIDTH
        for i in range(at, at + width, WIDTH):
            store(said.looked, i, nothing)
        for head in range(H):
            base = in_block(alike(K, I), layer, head // (H // K), NOUGHT)
            for s in range(0, length, BLOCK):
                key = starts[s // BLOCK] + base
                tokens = min(BLOCK, length - s)
                score_block(work.qkv, (n * H + head) * I, source.kv, key, tokens, I, work.looks, at + s)
            for s in range(0, filled, WIDTH):
                scores = times(load(work.looks, at + s), scale)
                store(work.looks, at + s, only_first(scores, length - s, lowest))
            softmax(work.looks, at, filled)
            for s in range(0, filled, WIDTH):
                store(said.looked, at + s, fma(load(work.looks, at + s), share, load(said.looked, at + s)))
        for s in range(0, filled, WIDTH):
            store(said.looked, at + s, only_first(load(said.looked, at + s), length - s, nothing))
        n = finish(turns, phase)
    return meet(turns, phase, count)
