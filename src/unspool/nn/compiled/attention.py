"""Grouped-query attention of one row to its own past, which lies in blocks.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

Block by block, with a running highest score m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib:
milakov2018online; Dao et al. 2022, §3.1, papers.bib: dao2022flashattention):

    m′ = max(m, max_t s_t),   z′ = e^(m − m′) z + Σ_t e^(s_t − m′),   o′ = e^(m − m′) o + Σ_t e^(s_t − m′) v_t

Blocks begin at the same positions in every row, whoever shares them, so that the order of these sums is the
row's own. The memory of a layer's block is keys before values: (2, K, BLOCK, I).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.dot_tile import tile_of
from unspool.kernels.exponential import exp
from unspool.kernels.kernel import kernel, small_kernel
from unspool.kernels.lanes import (
    WIDTH,
    first,
    fma,
    fused,
    higher,
    highest,
    load,
    plus,
    spread,
    store,
    times,
    total,
)

BLOCK = 16
"""Tokens a block. A multiple of WIDTH, so that its scores fill lanes."""
_scores = tile_of(1, WIDTH)
ZERO, LOWEST = np.float32(0), np.float32(-3e38)


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
def score_block(q: Any, at: int, k: Any, begin: int, width: int, p: Any, p0: int) -> None:
    """p[p0 : p0 + BLOCK]: the inner products of q[at …] and the BLOCK keys that begin at k[begin]."""
    even = width // WIDTH * WIDTH
    for t in range(0, BLOCK, WIDTH):
        _scores(k, begin + t * width, width, q, at, 0, even, max(even, WIDTH), p, p0 + t, 0)
    for t in range(BLOCK if even < width else 0):
        for i in range(even, width):
            p[p0 + t] = fused(q[at + i], k[begin + t * width + i], p[p0 + t])


@kernel
def _add_values(
    v: Any, begin: int, tokens: int, width: int, p: Any, p0: int, out: Any, at: int, keep: Any
) -> None:
    """out = keep · out + Σ_t p_t v_t."""
    even, pairs = width // WIDTH * WIDTH, width // (2 * WIDTH) * 2 * WIDTH
    for i in range(0, pairs, 2 * WIDTH):  # two sums at once: each waits for its own last step
        a, b = times(load(out, at + i), spread(keep)), times(load(out, at + i + WIDTH), spread(keep))
        for t in range(tokens):
            share, value = spread(p[p0 + t]), begin + t * width + i
            a = fma(share, load(v, value), a)
            b = fma(share, load(v, value + WIDTH), b)
        store(out, at + i, a)
        store(out, at + i + WIDTH, b)
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
def attend(
    q: Any, at: int, kv: Any, starts: Any, base: int, values: int, length: int, width: int, p: Any, p0: int,
    out: Any, to: int,
) -> None:  # fmt: skip
    """One head of one row: out[to : to + width] from the query at q[at].

    kv: all keys and values; starts: where each block of the row begins in kv; base: where this layer's
    keys of this head begin in a block; values: how far behind its keys its values are; p: BLOCK free numbers
    from p0 on.
    """
    scale = np.float32(1) / np.sqrt(np.float32(width))
    top, norm = LOWEST, ZERO
    for i in range(width):
        out[to + i] = ZERO
    for start in range(0, length, BLOCK):
        tokens = min(BLOCK, length - start)
        keys = starts[start // BLOCK] + base
        score_block(q, at, kv, keys, width, p, p0)  # what is not filled is not used
        for t in range(0, BLOCK, WIDTH):
            store(p, p0 + t, times(load(p, p0 + t), spread(scale)))
        for t in range(tokens, BLOCK):
            p[p0 + t] = LOWEST
        peak = load(p, p0)
        for t in range(WIDTH, BLOCK, WIDTH):
            peak = higher(peak, load(p, p0 + t))
        now = max(top, highest(peak))
        summed = spread(ZERO)
        for t in range(0, BLOCK, WIDTH):
            store(p, p0 + t, exp(plus(load(p, p0 + t), spread(-now))))
        for t in range(tokens, BLOCK):
            p[p0 + t] = ZERO
        for t in range(0, BLOCK, WIDTH):
            summed = plus(summed, load(p, p0 + t))
        keep = _exp(top - now)
        norm = fused(norm, keep, total(summed))
        _add_values(kv, keys + values, tokens, width, p, p0, out, to, keep)
        top = now
    for i in range(width):
        out[to + i] /= norm
