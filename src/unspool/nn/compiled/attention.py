"""Grouped-query attention of one row to its own past, which lies in blocks.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

where t runs over all of it, or over the last tokens of a window; scores may be bent to a cap (`soft_cap`),
and a number for the distance may be added to them (`nn.relative_positions`).
Block by block, with a running highest score m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib:
milakov2018online; Dao et al. 2022, §3.1, papers.bib: dao2022flashattention):

    m′ = max(m, max_t s_t),   z′ = e^(m − m′) z + Σ_t e^(s_t − m′),   o′ = e^(m − m′) o + Σ_t e^(s_t − m′) v_t

Blocks begin at the same positions in every row, whoever shares them, so that the order of these sums is the
row's own. The memory of a layer's block is, for every head of keys, its (BLOCK, width of keys) and then the
(BLOCK, width of values) of each head of values that goes with it. As a rule there is one, as wide as the
keys: (K, 2, BLOCK, I). Where a token's input is its key, all heads of values go with that one
(`nn.attention.keyless_attention`).
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


class Heads(NamedTuple):
    """Keys and values of a layer."""

    keys: int
    key_width: int
    values: int
    """Heads of values, as many for every one of keys."""
    value_width: int
    scale: Any
    """What scores are multiplied with."""


@small_kernel
def alike(kv_heads: int, width: int) -> Heads:
    """As many heads of keys as of values, of one width."""
    return Heads(kv_heads, width, kv_heads, width, ONE / np.sqrt(np.float32(width)))


@small_kernel
def own_heads(shape: Any) -> Heads:
    """What a model's layers keep of a row's own past."""
    K, I = shape.kv_heads, shape.head_width  # noqa: E741
    keys, width = 1 if shape.keyless else K, shape.width if shape.keyless else I
    return Heads(keys, width, K, I, ONE if shape.keyless else ONE / np.sqrt(np.float32(I)))


@small_kernel
def in_block(heads: Heads, layer: int, head: int, value: int) -> int:
    """Where a layer's keys of a head of keys, or where `value` is 1 its values of one of values, begin."""
    each = heads.values // heads.keys
    together = heads.key_width + each * heads.value_width
    if value == 0:
        return (layer * heads.keys + head) * together * BLOCK
    before = heads.key_width + head % each * heads.value_width
    return ((layer * heads.keys + head // each) * together + before) * BLOCK


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
def fetch(kv: Any, starts: Any, heads: Heads, layer: int, since: int, length: int, p: Any, p0: int) -> None:
    """Read the keys and values that all heads of a layer will look at, one number after another.

    Memory gives it so several times as fast as in the order in which heads want it, and it stays near.
    """
    each = heads.values // heads.keys
    for start in range(since // BLOCK * BLOCK, length, BLOCK):
        tokens = min(BLOCK, length - start)
        at = starts[start // BLOCK] + in_block(heads, layer, NOUGHT, NOUGHT)
        lanes = spread(ZERO)
        for strip in range(heads.keys + heads.values):
            width = heads.key_width if strip % (1 + each) == 0 else heads.value_width
            for i in range(at, at + tokens * width, 16):
                lanes = plus(lanes, load(kv, i))
            at += BLOCK * width
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
    q: Any, at: int, kv: Any, starts: Any, heads: Heads, keys: int, values: int, sight: Sight, head: int,
    p: Any, p0: int, out: Any, to: int,
) -> None:  # fmt: skip
    """One head of one row: out[to : to + width of values] from the query at q[at].

    kv: all keys and values; starts: where each block of the row begins in kv; keys, values: where those that
    this head of this layer looks at begin in a block; p: BLOCK free numbers from p0 on.
    """
    root, since, length, width = heads.scale, sight.since, sight.length, heads.value_width
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
        block = starts[start // BLOCK]
        score_block(q, at, kv, block + keys, tokens, heads.key_width, p, p0)
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
        _add_values(kv, block + values, tokens, width, p, p0, out, to, keep)
        top = now
    for i in range(0, even, WIDTH):
        store(out, to + i, over(load(out, to + i), spread(norm)))
    for i in range(even, width):
        out[to + i] /= norm


@kernel
def attend_head(
    H: int, heads: Heads, layer: int, piece: int, at: int, kv: Any, starts: Any, sight: Sight, work: Any
) -> None:
    """One head of one row, piece n · H + h of all: its query stands at work.qkv[at]."""
    head = piece % H
    keys = in_block(heads, layer, head // (H // heads.keys), NOUGHT)
    values = in_block(heads, layer, head // (H // heads.values), NOUGHT + 1)
    attend(
        work.qkv, at, kv, starts, heads, keys, values, sight, head, work.scores, piece * BLOCK, work.mixed,
        piece * heads.value_width,
    )  # fmt: skip


@kernel
def keep_heads(
    x: Any, at: int, heads: Heads, value: int, layer: int, position: int, kv: Any, block: int
) -> None:
    """The keys, or where `value` is 1 the values, from x[at] on into the block that has their position."""
    count = heads.values if value else heads.keys
    width = heads.value_width if value else heads.key_width
    for head in range(count):
        to = block + in_block(heads, layer, head, value) + position % BLOCK * width
        copy(x, at + head * width, kv, to, width)
