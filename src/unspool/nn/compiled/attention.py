"""Grouped-query attention of one row to its own past, which lies in blocks.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

where t runs over all of it, or over the last tokens of a window; scores may be bent to a cap (`soft_cap`),
and a number for the distance may be added to them (`nn.relative_positions`).
Block by block, with a running highest score m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib:
milakov2018online; Dao et al. 2022, §3.1, papers.bib: dao2022flashattention):

    m′ = max(m, max_t s_t),   z′ = e^(m − m′) z + Σ_t e^(s_t − m′),   o′ = e^(m − m′) o + Σ_t e^(s_t − m′) v_t

Blocks begin at the same positions in every row, whoever shares them, so that the order of these sums is the
row's own. The memory of a layer's block is (K, 2, BLOCK, I): what one head reads, its keys and then its
values, lies in one piece.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.dot_tile import Singles, tile_of
from unspool.kernels.exponential import exp
from unspool.kernels.kernel import NOUGHT, kernel, small_kernel
from unspool.kernels.lanes import (
    WIDTH,
    first,
    fma,
    fused,
    higher,
    highest,
    load,
    over,
    plus,
    spread,
    store,
    times,
    total,
)
from unspool.kernels.vectors import copy
from unspool.nn.compiled.soft_cap import bend

BLOCK = 32
"""Tokens a block. A multiple of WIDTH, so that its scores fill lanes."""
_scores = tile_of(1, WIDTH, Singles())
ZERO, ONE, LOWEST = np.float32(0), np.float32(1), np.float32(-3e38)


class Sight(NamedTuple):
    """What one row looks at, and what is done to its scores."""

    since: int
    length: int
    """Tokens from the first number to the second."""
    cap: float
    """What scores are bent to; 0: they are not."""
    numbers: Any
    """(buckets, heads): what is added to scores."""
    buckets: Any
    """Which of them, by distance."""
    place: int
    """Where the bucket of the first token stands; that of the next one stands behind it."""
    heads: int
    """0: nothing is added."""


@small_kernel
def in_block(kv_heads: int, width: int, layer: int, head: int, value: int) -> int:
    """Where a layer's keys of a head, or its values where `value` is 1, begin in a block."""
    return ((layer * kv_heads + head) * 2 + value) * BLOCK * width


@small_kernel
def _exp(x: Any) -> Any:
    """e^x of one number."""
    return first(exp(spread(x)))


@kernel
def dot(q: Any, at: int, k: Any, to: int, width: int) -> Any:
    """The inner product of q[at …] and k[to …]."""
    even = width // WIDTH * WIDTH
    lanes = spread(ZERO)
    for i in range(0, even, WIDTH):
        lanes = fma(load(q, at + i), load(k, to + i), lanes)
    found = total(lanes)
    for i in range(even, width):
        found = fused(q[at + i], k[to + i], found)
    return found


@kernel
def score_block(q: Any, at: int, k: Any, begin: int, tokens: int, width: int, p: Any, p0: int) -> None:
    """p[p0 : p0 + tokens]: the inner products of q[at …] and the keys from k[begin] on; WIDTH at a time."""
    even = width // WIDTH * WIDTH
    for t in range(0, tokens, WIDTH):
        _scores(k, begin + t * width, width, q, at, 0, even, p, p0 + t, 1, 0)
    for t in range(tokens if even < width else 0):
        for i in range(even, width):
            p[p0 + t] = fused(q[at + i], k[begin + t * width + i], p[p0 + t])


@kernel
def _add_values(
    v: Any, begin: int, tokens: int, width: int, p: Any, p0: int, out: Any, at: int, keep: Any
) -> None:
    """out = keep · out + Σ_t p_t v_t."""
    even, pairs = width // WIDTH * WIDTH, width // (2 * WIDTH) * 2 * WIDTH
    last, nothing = tokens // 2 * 2, spread(ZERO)
    for i in range(0, pairs, 2 * WIDTH):  # four sums at once, since each waits for its own last step
        j = i + WIDTH
        a, b = times(load(out, at + i), spread(keep)), times(load(out, at + j), spread(keep))
        c, d = nothing, nothing
        for t in range(0, last, 2):
            one, two, value = spread(p[p0 + t]), spread(p[p0 + t + 1]), begin + t * width
            a, b = fma(one, load(v, value + i), a), fma(one, load(v, value + j), b)
            c, d = fma(two, load(v, value + width + i), c), fma(two, load(v, value + width + j), d)
        if last < tokens:
            share, value = spread(p[p0 + last]), begin + last * width
            a, b = fma(share, load(v, value + i), a), fma(share, load(v, value + j), b)
        store(out, at + i, plus(a, c))
        store(out, at + j, plus(b, d))
    for i in range(pairs, even, WIDTH):
        lanes = times(load(out, at + i), spread(keep))
        for t in range(tokens):
            lanes = fma(spread(p[p0 + t]), load(v, begin + t * width + i), lanes)
        store(out, at + i, lanes)
    for i in range(even, width):
        found = out[at + i] * keep
        for t in range(tokens):
            found = fused(p[p0 + t], v[begin + t * width + i], found)
        out[at + i] = found


@kernel
def fetch(
    kv: Any, starts: Any, begin: int, heads: int, width: int, since: int, length: int, p: Any, p0: int
) -> None:
    """Read the keys and values that all heads of a layer will look at, one number after another.

    Memory gives it so several times as fast as in the order in which heads want it, and it stays near.
    `heads` counts those of keys and those of values; they begin at `begin` in every block.
    """
    for start in range(since // BLOCK * BLOCK, length, BLOCK):
        filled = min(BLOCK, length - start) * width
        lanes = spread(ZERO)
        for head in range(heads):
            at = starts[start // BLOCK] + begin + head * BLOCK * width
            for i in range(at, at + filled, 16):
                lanes = plus(lanes, load(kv, i))
        store(p, p0, lanes)  # nobody looks at it; without it, nothing would be read


@kernel
def _add_distances(sight: Sight, head: int, start: int, before: int, tokens: int, p: Any, p0: int) -> Any:
    """What distances add to the scores of a block; the highest of them."""
    peak = LOWEST
    for t in range(before, tokens):
        bucket = sight.buckets[sight.place + start + t]
        p[p0 + t] += sight.numbers[bucket * sight.heads + head]
        peak = max(peak, p[p0 + t])
    return peak


@kernel
def attend(
    q: Any, at: int, kv: Any, starts: Any, base: int, sight: Sight, head: int, width: int, p: Any, p0: int,
    out: Any, to: int,
) -> None:  # fmt: skip
    """One head of one row: out[to : to + width] from the query at q[at].

    kv: all keys and values; starts: where each block of the row begins in kv; base: where this layer's
    keys of this head begin in a block; p: BLOCK free numbers from p0 on.
    """
    root, since, length = ONE / np.sqrt(np.float32(width)), sight.since, sight.length
    scale = spread(root if sight.cap == 0 else ONE)
    top, norm = LOWEST, ZERO
    even, nothing = width // WIDTH * WIDTH, spread(ZERO)
    for i in range(0, even, WIDTH):
        store(out, to + i, nothing)
    for i in range(even, width):
        out[to + i] = ZERO
    for start in range(since // BLOCK * BLOCK, length, BLOCK):
        tokens = min(BLOCK, length - start)
        filled = (tokens + WIDTH - 1) // WIDTH * WIDTH
        before = max(since - start, 0)
        keys = starts[start // BLOCK] + base
        score_block(q, at, kv, keys, tokens, width, p, p0)
        if sight.cap != 0:
            bend(p, p0, filled, root, sight.cap)
        for t in range(tokens, filled):  # what is not filled is not used
            p[p0 + t] = LOWEST
        for t in range(before):
            p[p0 + t] = LOWEST
        peak = spread(LOWEST)
        for t in range(0, filled, WIDTH):
            scores = times(load(p, p0 + t), scale)
            store(p, p0 + t, scores)
            peak = higher(peak, scores)
        if sight.heads:
            peak = spread(_add_distances(sight, head, start, before, tokens, p, p0))
        now = max(top, highest(peak))
        shift = spread(-now)
        for t in range(0, filled, WIDTH):
            store(p, p0 + t, exp(plus(load(p, p0 + t), shift)))
        for t in range(tokens, filled):
            p[p0 + t] = ZERO
        for t in range(before):
            p[p0 + t] = ZERO
        summed = spread(ZERO)
        for t in range(0, filled, WIDTH):
            summed = plus(summed, load(p, p0 + t))
        keep = _exp(top - now)
        norm = fused(norm, keep, total(summed))
        _add_values(kv, keys + BLOCK * width, tokens, width, p, p0, out, to, keep)
        top = now
    for i in range(0, even, WIDTH):
        store(out, to + i, over(load(out, to + i), spread(norm)))
    for i in range(even, width):
        out[to + i] /= norm


@kernel
def attend_head(
    shape: Any, layer: int, piece: int, query: int, kv: Any, starts: Any, sight: Sight, work: Any
) -> None:
    """One head of one row, piece n · H + h of all: the query is the `query`-th vector of work.qkv."""
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    head = piece % H
    base = in_block(K, I, layer, head // (H // K), NOUGHT)
    attend(
        work.qkv, query * I, kv, starts, base, sight, head, I, work.scores, piece * BLOCK, work.mixed,
        piece * I,
    )  # fmt: skip


@kernel
def keep_heads(
    qkv: Any, at: int, kv_heads: int, width: int, layer: int, position: int, kv: Any, block: int
) -> None:
    """The keys and then the values that stand at qkv[at …] into the block that has their position."""
    for head in range(2 * kv_heads):
        begin = in_block(kv_heads, width, layer, head % kv_heads, head // kv_heads)
        copy(qkv, at + head * width, kv, block + begin + position % BLOCK * width, width)
