"""Grouped-query attention of one row to its own past, which lies in blocks.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

where t runs over all of it, or over the last tokens of a window; scores may be bent to a cap (`soft_cap`),
and a number for the distance may be added to them (`nn.relative_positions`).
Span by span, with a running highest score m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib:
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

from unspool.engine.dot_products import Singles, tile_of
from unspool.engine.kernel import NOUGHT, kernel, small_kernel
from unspool.engine.layers import bend
from unspool.engine.memory import floats, reserve
from unspool.engine.simd import (
    WIDTH,
    copy,
    exp,
    first,
    fma,
    fused,
    higher,
    highest,
    load,
    only_first,
    over,
    plus,
    prefetch,
    spread,
    store,
    times,
    total,
)
from unspool.engine.step_memory import Past, Rows, Work
from unspool.engine.threads import finish, meet, take
from unspool.engine.weight_table import INPUTS, OUTPUTS, QKV, RELATIVE, WEIGHT, Shape

BLOCK = 16
"""Tokens a block. A multiple of WIDTH, so that its scores fill lanes; few, since rows that part copy one."""
SPAN = 128
"""Tokens whose scores are made before their values are looked at, at most: whole blocks."""
TOGETHER = 32
"""Heads of rows that are worked on together, at most; or all rows of one head."""
TOP, NORM, KEEP = SPAN, SPAN + 1, SPAN + 2
"""Where behind its scores m, z and e^(m − m′) of a head of a row stand."""
ROOM = SPAN + WIDTH
SCRATCH = TOGETHER * ROOM
PIECES = 4
"""What there is to do is cut into so many pieces for each thread, if heads can be cut so."""
LINE = 16
"""Numbers in a line of the cache."""
_scores, _half, _quarter = (tile_of(1, C, Singles()) for C in (WIDTH, WIDTH // 2, WIDTH // 4))
ZERO, ONE, LOWEST = np.float32(0), np.float32(1), np.float32(-3e38)


class View(NamedTuple):
    """What rows look at, and what is done to their scores."""

    kv: Any
    """All blocks."""
    starts: Any
    """(sequences, blocks of each): where a block begins in kv."""
    sequences: Any
    """(rows): whose blocks each row looks at."""
    lengths: Any
    """How many of their tokens: by row, or by sequence."""
    by_row: bool
    window: int
    """Of these it sees so many, the last ones."""
    cap: float
    """What scores are bent to; 0: they are not."""
    numbers: Any
    """(buckets, heads): what is added to scores."""
    buckets: Any
    """Which of them, by distance; a row's own place is in the middle."""
    positions: Any
    """(rows): these places."""
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


@small_kernel
def score_block(q: Any, at: int, k: Any, begin: int, tokens: int, width: int, p: Any, p0: int) -> None:
    """p[p0 : p0 + tokens]: the inner products of q[at …] and the keys from k[begin] on; WIDTH at a time.

    Of the last ones, as few as can be at once: what is not filled need not come from memory.
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
            p[p0 + t] = fused(q[at + i], k[begin + t * width + i], p[p0 + t])


@small_kernel
def _add_values(
    v: Any, starts: Any, values: int, start: int, before: int, tokens: int, width: int, p: Any, p0: int,
    out: Any, at: int, fresh: bool, norm: Any,
) -> None:  # fmt: skip
    """out = (keep · out + Σ_t p_t v_t) / norm over a span from `start` on, but for its first `before` tokens.

    keep is 0, and nothing is there yet, where out is `fresh`.
    """
    even, pairs, nothing = width // WIDTH * WIDTH, width // (2 * WIDTH) * 2 * WIDTH, spread(ZERO)
    keep, by = spread(p[p0 + KEEP]), spread(norm)
    for i in range(0, pairs, 2 * WIDTH):  # four sums at once, since each waits for its own last step
        j = i + WIDTH
        a = nothing if fresh else times(load(out, at + i), keep)
        b = nothing if fresh else times(load(out, at + j), keep)
        c, d = nothing, nothing
        for block in range(0, tokens, BLOCK):
            begin = starts[(start + block) // BLOCK] + values - block * width
            t, end = max(block, before), min(block + BLOCK, tokens)
            while t + 1 < end:
                one, two, value = spread(p[p0 + t]), spread(p[p0 + t + 1]), begin + t * width
                a, b = fma(one, load(v, value + i), a), fma(one, load(v, value + j), b)
                c, d = fma(two, load(v, value + width + i), c), fma(two, load(v, value + width + j), d)
                t += 2
            if t < end:
                share, value = spread(p[p0 + t]), begin + t * width
                a, b = fma(share, load(v, value + i), a), fma(share, load(v, value + j), b)
        store(out, at + i, over(plus(a, c), by))
        store(out, at + j, over(plus(b, d), by))
    for i in range(pairs, even, WIDTH):
        lanes = nothing if fresh else times(load(out, at + i), keep)
        for t in range(before, tokens):
            value = starts[(start + t) // BLOCK] + values + t % BLOCK * width
            lanes = fma(spread(p[p0 + t]), load(v, value + i), lanes)
        store(out, at + i, over(lanes, by))
    for i in range(even, width):
        found = ZERO if fresh else out[at + i] * p[p0 + KEEP]
        for t in range(before, tokens):
            value = starts[(start + t) // BLOCK] + values + t % BLOCK * width
            found = fused(p[p0 + t], v[value + i], found)
        out[at + i] = found / norm


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
            for i in range(at, at + tokens * width, LINE):
                lanes = plus(lanes, load(kv, i))
            at += BLOCK * width
        store(p, p0, lanes)  # nobody looks at it; without it, nothing would be read


@kernel
def _add_distances(
    view: View, n: int, head: int, start: int, before: int, tokens: int, p: Any, p0: int
) -> Any:
    """What distances add to the scores of a span; the highest of them."""
    peak, place = LOWEST, view.buckets.size // 2 - view.positions[n] + start
    for t in range(before, tokens):
        p[p0 + t] += view.numbers[view.buckets[place + t] * view.heads + head]
        peak = max(peak, p[p0 + t])
    return peak


@small_kernel
def _share_out(
    view: View, root: Any, n: int, head: int, start: int, before: int, tokens: int, p: Any, p0: int,
    fresh: bool,
) -> None:  # fmt: skip
    """The scores of a span to e^(s − m′), and m′, z′ and e^(m − m′) behind them."""
    filled = (tokens + WIDTH - 1) // WIDTH * WIDTH
    if view.cap != 0:
        bend(p, p0, filled, root, view.cap)
    lowest = spread(LOWEST)
    peak, scale = lowest, spread(root if view.cap == 0 else ONE)
    for t in range(0, filled, WIDTH):  # what is not filled is not used
        scores = only_first(times(load(p, p0 + t), scale), tokens - t, lowest)
        scores = only_first(lowest, before - t, scores)
        store(p, p0 + t, scores)
        peak = higher(peak, scores)
    if view.heads:
        peak = spread(_add_distances(view, n, head, start, before, tokens, p, p0))
    top, norm = (LOWEST, ZERO) if fresh else (p[p0 + TOP], p[p0 + NORM])
    now = max(top, highest(peak))
    shift, summed = spread(-now), spread(ZERO)
    for t in range(0, filled, WIDTH):  # e^LOWEST is too little to change a sum
        mass = exp(plus(load(p, p0 + t), shift))
        store(p, p0 + t, mass)
        summed = plus(summed, mass)
    keep = ZERO if fresh else first(exp(spread(top - now)))
    p[p0 + TOP], p[p0 + NORM], p[p0 + KEEP] = now, fused(norm, keep, total(summed)), keep


@small_kernel
def _seen(view: View, n: int) -> tuple[int, int]:
    """The first token that row n sees, and the one behind the last."""
    length = view.lengths[n] if view.by_row else view.lengths[view.sequences[n]]
    return max(length - view.window, 0), length


@kernel
def _attend_together(
    heads: Heads, H: int, layer: int, view: View, q: Any, size: int, rows: Any, which: Any, p: Any, out: Any
) -> None:
    """`attend` for so many heads of rows that their scores fit into p."""
    (row, last), (low, high), longest = rows, which, NOUGHT
    for n in range(row, last):
        since, length = _seen(view, n)
        longest = max(longest, length - since // BLOCK * BLOCK)
    to_keys, to_values, each = H // heads.keys, H // heads.values, heads.values // heads.keys
    width, begin = heads.value_width, in_block(heads, layer, NOUGHT, NOUGHT)
    together = (heads.key_width + each * width) * BLOCK
    for stage in range(0, 3 * ((longest + SPAN - 1) // SPAN)):
        span, p0, fresh = stage // 3 * SPAN, NOUGHT, stage < 3
        for head in range(low, high):
            mine = head // to_keys
            keys = begin + mine * together
            values = keys + (heads.key_width + (head // to_values - mine * each) * width) * BLOCK
            for n in range(row, last):
                since, length = _seen(view, n)
                start, starts = since // BLOCK * BLOCK + span, view.starts[view.sequences[n]]
                tokens, before = min(SPAN, length - start), max(since - start, 0)
                if stage % 3 == 0:
                    at = n * size + head * heads.key_width
                    for t in range(0, tokens, BLOCK):
                        key, some = starts[(start + t) // BLOCK] + keys, min(BLOCK, tokens - t)
                        score_block(q, at, view.kv, key, some, heads.key_width, p, p0 + t)
                        for i in range(0, some * width, LINE):  # they will be wanted soon
                            prefetch(view.kv, key - keys + values + i)
                elif tokens > 0 and stage % 3 == 1:
                    _share_out(view, heads.scale, n, head, start, before, tokens, p, p0, fresh)
                elif tokens > 0:
                    norm, to = p[p0 + NORM] if start + tokens == length else ONE, (n * H + head) * width
                    _add_values(
                        view.kv, starts, values, start, before, tokens, width, p, p0, out, to, fresh, norm
                    )
                p0 += ROOM


@kernel
def attend(
    heads: Heads, H: int, layer: int, view: View, q: Any, size: int, rows: Any, which: Any, p: Any, out: Any
) -> None:
    """Some heads of some rows, each from one number to another: out (rows, H, width of values).

    Their queries stand in q, those of a row `size` numbers behind the row before; p has SCRATCH free numbers.
    What a head of a row finds waits for its scores, and its scores for its keys. So the scores of several are
    made first, then what they share out, then their sums: while one waits, others do not.
    """
    (first_row, last), (low, high) = rows, which
    beside = min(last - first_row, TOGETHER)
    for n in range(first_row, last, beside):
        for head in range(low, high, TOGETHER // beside):
            some, these = (n, min(n + beside, last)), (head, min(head + TOGETHER // beside, high))
            _attend_together(heads, H, layer, view, q, size, some, these, p, out)


@kernel
def heads_at_a_time(H: int, rows: int, threads: int) -> int:
    """How many heads of a row one thread takes: all where there is one thread or there are many rows."""
    each = H
    while each % 2 == 0 and rows * (H // each) < PIECES * threads and threads > 1:
        each //= 2
    return each if threads == 1 or rows * (H // each) >= PIECES * threads else 1


@kernel
def ask_for_places(heads: Heads, layer: int, position: int, kv: Any, block: int) -> None:
    """Let memory begin to fetch what the keys and values of a position will be written over, soon."""
    at, each = block + in_block(heads, layer, NOUGHT, NOUGHT), heads.values // heads.keys
    for strip in range(heads.keys + heads.values):
        width = heads.key_width if strip % (1 + each) == 0 else heads.value_width
        for i in range(0, width, LINE):
            prefetch(kv, at + position % BLOCK * width + i)
        at += BLOCK * width


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


MANY = 16
"""Rows from which on a thread takes several of them."""
BESIDE = 4
"""So many."""


@kernel
def attend_past(
    shape: Shape, parts: Any, layer: int, rows: Rows, past: Past, work: Work, turns: Any, phase: int,
    threads: int,
) -> int:  # fmt: skip
    """Every head of every row, into work.mixed.

    Attention of rows to their own past: one phase of a step, shared by all threads (`turns`).

    Of many rows a thread takes several at a time with all heads, of a few rows some heads of one.
    """
    H, kept, count = shape.heads, own_heads(shape), rows.positions.size
    size, relative = parts[layer, QKV, OUTPUTS], parts[shape.layers, RELATIVE]
    numbers = floats(relative[WEIGHT], relative[OUTPUTS] * relative[INPUTS])
    view = View(
        past.kv, past.starts, rows.sequences, rows.reach, True, past.windows[layer], shape.attention_cap,
        numbers, past.buckets, rows.positions, relative[INPUTS],
    )  # fmt: skip
    p = floats(reserve(SCRATCH + NOUGHT), SCRATCH)
    beside, each = BESIDE if count >= MANY else 1, heads_at_a_time(H, count, threads)
    cuts = H // each
    pieces = (count + beside - 1) // beside * cuts
    piece = take(turns, phase)
    while piece < pieces:
        n, head = piece // cuts * beside, piece % cuts * each
        if count < MANY and head == 0 and (n == 0 or rows.sequences[n] != rows.sequences[n - 1]):
            since = max(rows.reach[n] - past.windows[layer], 0)
            fetch(past.kv, past.starts[rows.sequences[n]], kept, layer, since, rows.reach[n], p, NOUGHT)
        some, which = (n, min(n + beside, count)), (head, head + each)
        attend(kept, H, layer, view, work.qkv, size, some, which, p, work.mixed)
        piece = finish(turns, phase)
    return meet(turns, phase, pieces)
