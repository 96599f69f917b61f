"""Grouped-query attention of rows to a paged KV cache.

    α_t = softmax_t(q · k_t / √I),   out = Σ_t α_t v_t

t runs over all tokens, or over the last tokens of a window. Scores may be soft-capped (`layers.soft_cap`),
and a number for the relative position may be added. The softmax is computed span by span, with a running
maximum m, normaliser z and sum o (Milakov & Gimelshein 2018, papers.bib: milakov2018online; Dao et al. 2022,
§3.1, papers.bib: dao2022flashattention):
    m′ = max(m, max_t s_t),   z′ = e^(m − m′) z + Σ_t e^(s_t − m′),   o′ = e^(m − m′) o + Σ_t e^(s_t − m′) v_t

Rows of one sequence and the query heads of one value head are computed together, in tiles of several queries
(`attention_tiles`). Spans and blocks start at the same positions in every sequence, so that the order of
these sums depends on the row alone.

For each key head, a layer's block holds the keys (key width, BLOCK), transposed, and then the values (BLOCK,
value width) of each value head that belongs to it: usually one. In keyless attention, where a token's input
is its key, all value heads belong to the one key head.

Keys and values may be stored as float16. The span of a value head is then converted to float32 before its
scores are computed; all sums are in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.engine.attention_tiles import BLOCK, score_tile, value_tile
from unspool.engine.kernel import (
    INT64_ZERO,
    bytes_at,
    floats_at,
    inline_kernel,
    ints_at,
    kernel,
    stack_alloc,
    uint16_at,
)
from unspool.engine.layers import soft_cap
from unspool.engine.memory import MAX_STACK_FLOATS
from unspool.engine.simd import (
    WIDTH,
    copy_floats,
    first_element,
    load,
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
from unspool.engine.simd_bytes import float16_to_float32, float_to_half, load_uint16
from unspool.engine.step_memory import CacheAndPositions, StepTokens, Workspace
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_table import INPUTS, OUTPUTS, QKV, RELATIVE, WEIGHT, ModelShape

SPAN = 128
"""Tokens whose scores are computed before their values are read, at most: whole blocks."""
MAX_QUERIES = 48
"""Queries (pairs of row and head) in one pass, at most."""
MAX_SLOT, NORM_SLOT, RESCALE_SLOT = SPAN, SPAN + 1, SPAN + 2
"""Offsets behind the scores of a query: m, z and e^(m − m′)."""
SCORE_STRIDE = SPAN + WIDTH
SCORE_FLOATS = MAX_QUERIES * SCORE_STRIDE
AT, TO, SINCE, LENGTH, ROW, HEAD = (k * MAX_QUERIES for k in range(6))
"""Lists of a pass: offset in q, offset in out, first token, token behind the last one, row and head."""
SPAN_STARTS = 6 * MAX_QUERIES
"""The list behind them: the offset of each block of a converted span."""
SCRATCH_FLOATS: Any = np.int64(SCORE_FLOATS + 2 * (SPAN_STARTS + SPAN // BLOCK))
"""Scratch of a thread: the scores, and these lists of int64. Behind it, a span converted to float32."""
MAX_HALF_WIDTH = MAX_STACK_FLOATS // SPAN
"""Numbers of a key and a value together in a float16 cache, at most: converted spans are on the stack."""
CACHE_LINE_FLOATS = 16
NO_TOKEN: Any = np.int64(2**62)
"""A position behind every token."""
VALUE_VECTORS = 4
"""Vectors of a value in a tile."""
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
    half: bool = False
    """They are stored as float16; offsets in a block count numbers, offsets of blocks float32."""


@inline_kernel
def kv_layout(kv_heads: int, width: int) -> KVLayout:
    """Equally many key and value heads of one width."""
    return KVLayout(kv_heads, width, kv_heads, width, ONE / np.sqrt(np.float32(width)), False)


@inline_kernel
def self_kv_layout(shape: Any) -> KVLayout:
    """The layout of a model's self-attention."""
    K, I = shape.kv_heads, shape.head_width  # noqa: E741
    keys, width = 1 if shape.keyless else K, shape.width if shape.keyless else I
    scale = ONE if shape.keyless else ONE / np.sqrt(np.float32(I))
    return KVLayout(keys, width, K, I, scale, shape.half_cache)


@inline_kernel
def scratch_floats(layout: KVLayout) -> Any:
    """The size of the scratch of `attend`."""
    return SCRATCH_FLOATS + (SPAN * (layout.key_width + layout.value_width) if layout.half else 0)


@inline_kernel
def offset_in_block(layout: KVLayout, layer: int, head: int, value: int) -> int:
    """The offset in a block of a layer's keys of a key head, or, if `value` is 1, values of a value head."""
    each = layout.values // layout.keys
    together = layout.key_width + each * layout.value_width
    if value == 0:
        return (layer * layout.keys + head) * together * BLOCK
    before = layout.key_width + head % each * layout.value_width
    return ((layer * layout.keys + head // each) * together + before) * BLOCK


def _score_kernel(R: int, vectors: int) -> Any:
    """The scores of R queries from the j-th on, with the blocks low … high − 1 counted from `block`."""
    C = max(1, vectors * WIDTH // BLOCK)
    many, single = score_tile(R, C), score_tile(R, 1)

    @kernel
    def score(
        q: Any, lists: Any, j: int, width: int, kv: Any, starts: Any, block: int, low: int, high: int,
        keys: int, p: Any,
    ) -> None:  # fmt: skip
        b, p0 = low, j * SCORE_STRIDE
        while b + C <= high:
            many(q, lists, AT + j, width, kv, starts, block + b, keys, p, p0 + b * BLOCK, SCORE_STRIDE)
            b += C
        while b < high:
            single(q, lists, AT + j, width, kv, starts, block + b, keys, p, p0 + b * BLOCK, SCORE_STRIDE)
            b += 1

    return score


def _sum_kernel(R: int) -> Any:
    """out += Σ_t p_t v_t of R queries from the j-th on, over the tokens first … last − 1 of a span."""
    wide, narrow = value_tile(R, VALUE_VECTORS), value_tile(R, 1)

    @kernel
    def sum_values(
        j: int, first: int, last: int, kv: Any, starts: Any, block: int, values: int, width: int, p: Any,
        lists: Any, out: Any,
    ) -> None:  # fmt: skip
        i, p0 = INT64_ZERO, j * SCORE_STRIDE
        while i + VALUE_VECTORS * WIDTH <= width:
            wide(p, p0, SCORE_STRIDE, first, last, kv, starts, block, values, width, out, lists, TO + j, i)
            i += VALUE_VECTORS * WIDTH
        while i + WIDTH <= width:
            narrow(p, p0, SCORE_STRIDE, first, last, kv, starts, block, values, width, out, lists, TO + j, i)
            i += WIDTH
        for r in range(R if i < width else 0):
            for k in range(i, width):
                to = lists[TO + j + r] + k
                sum_ = out[to]
                for t in range(first, last):
                    at = starts[block + t // BLOCK] + values + t % BLOCK * width + k
                    sum_ = scalar_fma(p[p0 + r * SCORE_STRIDE + t], kv[at], sum_)
                out[to] = sum_

    return sum_values


_score_six, _score_three, _score_one = (_score_kernel(R, vectors) for R, vectors in ((6, 2), (3, 4), (1, 8)))
_sum_six, _sum_three, _sum_one = (_sum_kernel(R) for R in (6, 3, 1))
"""For six, three or one query: their sums and the loaded vectors fit into the registers."""


@kernel
def _score(
    q: Any, lists: Any, first: int, last: int, width: int, kv: Any, starts: Any, block: int, low: int,
    high: int, keys: int, p: Any,
) -> None:  # fmt: skip
    """Scores of the queries first … last − 1 with the blocks low … high − 1, counted from `block`."""
    j = first
    while j < last:
        if last - j >= 6:
            _score_six(q, lists, j, width, kv, starts, block, low, high, keys, p)
            j += 6
        elif last - j >= 3:
            _score_three(q, lists, j, width, kv, starts, block, low, high, keys, p)
            j += 3
        else:
            _score_one(q, lists, j, width, kv, starts, block, low, high, keys, p)
            j += 1


@kernel
def _sum_values(
    first: int, last: int, start: int, kv: Any, starts: Any, block: int, values: int, width: int, p: Any,
    lists: Any, out: Any,
) -> None:  # fmt: skip
    """Add the values of a span to the outputs of the queries first … last − 1.

    The tokens that all queries of a tile attend to are added together. The tokens before and behind them
    are added for each query, so that a masked token never enters a sum, not even with weight 0.
    """
    j = first
    while j < last:
        R = 6 if last - j >= 6 else 3 if last - j >= 3 else 1
        low, high = INT64_ZERO, INT64_ZERO + SPAN
        for r in range(j, j + R):
            low, high = max(low, lists[SINCE + r] - start), min(high, lists[LENGTH + r] - start)
        if low >= high:
            low = high = INT64_ZERO + SPAN
        for r in range(j, j + R):
            begin, end = max(lists[SINCE + r] - start, 0), min(lists[LENGTH + r] - start, SPAN)
            if begin < min(low, end):
                _sum_one(r, begin, min(low, end), kv, starts, block, values, width, p, lists, out)
        if low < high and R == 6:
            _sum_six(j, low, high, kv, starts, block, values, width, p, lists, out)
        elif low < high and R == 3:
            _sum_three(j, low, high, kv, starts, block, values, width, p, lists, out)
        elif low < high:
            _sum_one(j, low, high, kv, starts, block, values, width, p, lists, out)
        for r in range(j, j + R):
            end = min(lists[LENGTH + r] - start, SPAN)
            if high < end:
                _sum_one(r, high, end, kv, starts, block, values, width, p, lists, out)
        j += R


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


@kernel
def _softmax_span(
    inputs: AttentionInputs, root: Any, n: int, head: int, start: int, before: int, tokens: int, p: Any,
    p0: int, fresh: bool,
) -> None:  # fmt: skip
    """Replace the scores of a span by e^(s − m′), and store m′, z′ and e^(m − m′) behind them."""
    first, filled = before // WIDTH * WIDTH, (tokens + WIDTH - 1) // WIDTH * WIDTH
    if inputs.cap != 0:
        soft_cap(p, p0 + first, filled - first, root, inputs.cap)
    lowest = splat(MASKED_SCORE)
    peak, scale = lowest, splat(root if inputs.cap == 0 else ONE)
    for t in range(first, filled, WIDTH):  # padding is masked
        scores = select_first(vmul(load(p, p0 + t), scale), tokens - t, lowest)
        scores = select_first(lowest, before - t, scores)
        store(p, p0 + t, scores)
        peak = vmax(peak, scores)
    if inputs.bias_heads:
        peak = splat(_add_distances(inputs, n, head, start, before, tokens, p, p0))
    top, norm = (MASKED_SCORE, ZERO) if fresh else (p[p0 + MAX_SLOT], p[p0 + NORM_SLOT])
    now = max(top, vmax_element(peak))
    shift, summed = splat(-now), splat(ZERO)
    for t in range(first, filled, WIDTH):  # e^MASKED_SCORE does not change a sum
        mass = vexp(vadd(load(p, p0 + t), shift))
        store(p, p0 + t, mass)
        summed = vadd(summed, mass)
    keep = ZERO if fresh else first_element(vexp(splat(top - now)))
    p[p0 + MAX_SLOT], p[p0 + NORM_SLOT], p[p0 + RESCALE_SLOT] = (
        now,
        scalar_fma(norm, keep, vsum(summed)),
        keep,
    )


@kernel
def _scale_output(out: Any, to: int, width: int, factor: Any, divide: bool) -> None:
    """out ← factor · out, or out / factor; a factor of 0 also overwrites uninitialised memory."""
    even, vector = width // WIDTH * WIDTH, splat(factor)
    for i in range(0, even, WIDTH):
        x = load(out, to + i)
        store(out, to + i, splat(ZERO) if factor == ZERO else vdiv(x, vector) if divide else vmul(x, vector))
    for i in range(even, width):
        out[to + i] = ZERO if factor == ZERO else out[to + i] / factor if divide else out[to + i] * factor


@kernel
def _read_ahead(
    inputs: AttentionInputs, starts: Any, first: int, last: int, low: int, high: int, p: Any
) -> None:
    """Read the numbers low … high − 1 of some blocks in memory order, so that they are in the cache.

    This is several times as fast as reading them in the order in which the heads need them.
    """
    vector = splat(ZERO)
    for block in range(first, last):
        for i in range(starts[block] + low, starts[block] + high, CACHE_LINE_FLOATS):
            vector = vadd(vector, load(inputs.kv, i))
    store(p, INT64_ZERO, vector)  # unused; without it the compiler would remove the loads


@kernel
def _convert_span(
    layout: KVLayout, layer: int, head: int, kv: Any, starts: Any, block: int, first: int, last: int,
    span: Any, span_starts: Any,
) -> None:  # fmt: skip
    """Convert a value head's part of the blocks first … last − 1 of a span from float16 to float32.

    A converted block holds the keys, then the values.
    """
    key_numbers, value_numbers = BLOCK * layout.key_width, BLOCK * layout.value_width
    halves, each = bytes_at(kv.ctypes.data, 4 * kv.size), layout.values // layout.keys
    keys = offset_in_block(layout, layer, head // each, INT64_ZERO)
    values = offset_in_block(layout, layer, head, INT64_ZERO + 1)
    for b in range(first, last):
        at, to = 4 * starts[block + b], b * (key_numbers + value_numbers)
        span_starts[b] = to
        for i in range(0, key_numbers, WIDTH):
            store(span, to + i, float16_to_float32(load_uint16(halves, at + 2 * (keys + i))))
        to += key_numbers
        for i in range(0, value_numbers, WIDTH):
            store(span, to + i, float16_to_float32(load_uint16(halves, at + 2 * (values + i))))


@kernel
def _attend_pass(
    layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, rows: Any, heads: Any,
    p: Any, out: Any,
) -> None:  # fmt: skip
    """`attend` for rows of one sequence, a range of value heads, and a range of the query heads of each.

    There are at most MAX_QUERIES queries in all.
    """
    (row, last), (low, high, first_query, last_query), group = rows, heads, H // layout.values
    lists = ints_at(p.ctypes.data + 4 * SCORE_FLOATS, SPAN_STARTS)
    span_starts = ints_at(p.ctypes.data + 4 * SCORE_FLOATS + 8 * SPAN_STARTS, SPAN // BLOCK)
    span = floats_at(p.ctypes.data + 4 * SCRATCH_FLOATS, scratch_floats(layout) - SCRATCH_FLOATS)
    each, count = layout.values // layout.keys, (last - row) * (last_query - first_query)
    since: Any = NO_TOKEN
    length, j = INT64_ZERO, INT64_ZERO
    for value_head in range(low, high):
        for n in range(row, last):
            end = inputs.lengths[n] if inputs.by_row else inputs.lengths[inputs.sequences[n]]
            begin = max(end - inputs.window, 0)
            since, length = min(since, begin), max(length, end)
            for head in range(value_head * group + first_query, value_head * group + last_query):
                lists[AT + j], lists[TO + j] = (
                    n * size + head * layout.key_width,
                    (n * H + head) * layout.value_width,
                )
                lists[SINCE + j], lists[LENGTH + j], lists[ROW + j], lists[HEAD + j] = begin, end, n, head
                j += 1
    own_starts = inputs.starts[inputs.sequences[row]]
    for start in range(since // SPAN * SPAN, length, SPAN):
        kv, starts, block = inputs.kv, own_starts, start // BLOCK
        first, behind = max(since - start, 0) // BLOCK, (min(SPAN, length - start) + BLOCK - 1) // BLOCK
        if last - row == 1 and not layout.half:
            begin = offset_in_block(layout, layer, low // each, INT64_ZERO)
            end = offset_in_block(layout, layer, high - 1, INT64_ZERO + 1) + BLOCK * layout.value_width
            _read_ahead(inputs, starts, block + first, block + behind, begin, end, p)
        for value_head in range(low, high):
            keys = offset_in_block(layout, layer, value_head // each, INT64_ZERO)
            values = offset_in_block(layout, layer, value_head, INT64_ZERO + 1)
            if layout.half:
                place = start // BLOCK
                _convert_span(
                    layout, layer, value_head, inputs.kv, own_starts, place, first, behind, span, span_starts
                )
                kv, starts, block, keys = span, span_starts, INT64_ZERO, INT64_ZERO
                values = BLOCK * layout.key_width
            j0 = (value_head - low) * count
            _score(q, lists, j0, j0 + count, layout.key_width, kv, starts, block, first, behind, keys, p)
            for j in range(j0, j0 + count):
                before, tokens = max(lists[SINCE + j] - start, 0), min(SPAN, lists[LENGTH + j] - start)
                if before < tokens:
                    p0, fresh = j * SCORE_STRIDE, start == lists[SINCE + j] // SPAN * SPAN
                    n, head = lists[ROW + j], lists[HEAD + j]
                    _softmax_span(inputs, layout.scale, n, head, start, before, tokens, p, p0, fresh)
                    if p[p0 + RESCALE_SLOT] != ONE:
                        _scale_output(out, lists[TO + j], layout.value_width, p[p0 + RESCALE_SLOT], False)
            width = layout.value_width
            _sum_values(j0, j0 + count, start, kv, starts, block, values, width, p, lists, out)
    for j in range((high - low) * count):
        _scale_output(out, lists[TO + j], layout.value_width, p[j * SCORE_STRIDE + NORM_SLOT], True)


@kernel
def attend(
    layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, rows: Any, heads: Any,
    p: Any, out: Any,
) -> None:  # fmt: skip
    """Attention of a range of rows and a range of value heads: out (rows, H, value width).

    The queries of row n start at q[n · size]; p is a buffer of `scratch_floats`. Several rows of a sequence
    take one head after another; a single row takes several heads at once, whose keys and values are
    neighbours.
    """
    (n, last), (low, high), group = rows, heads, H // layout.values
    queries = min(group, MAX_QUERIES)
    while n < last:
        end = n + 1
        while end < last and (end - n + 1) * queries <= MAX_QUERIES and _attend_to_same(inputs, n, end):
            end += 1
        at_once = MAX_QUERIES // queries if end - n == 1 else 1
        for head in range(low, high, at_once):
            for query in range(0, group, queries):
                these = (head, min(head + at_once, high), query, min(query + queries, group))
                _attend_pass(layout, H, layer, inputs, q, size, (n, end), these, p, out)
        n = end


@inline_kernel
def _attend_to_same(inputs: AttentionInputs, n: int, other: int) -> bool:
    """True if two rows belong to one sequence, or to one source: two sources never share a block."""
    a, b = inputs.sequences[n], inputs.sequences[other]
    return a == b if inputs.by_row else inputs.starts[a, 0] == inputs.starts[b, 0]  # type: ignore[no-any-return]


@kernel
def heads_per_chunk(values: int, rows: int, threads: int) -> int:
    """Value heads of a row in a chunk: all with one thread or many rows, else one."""
    return values if threads == 1 or rows >= 2 * threads else 1


@kernel
def store_heads(
    x: Any, at: int, layout: KVLayout, value: int, layer: int, position: int, kv: Any, block: int
) -> None:
    """Copy the keys, or, if `value` is 1, the values, from x[at] on to their position in a block."""
    halves = uint16_at(kv.ctypes.data, 2 * kv.size)
    count = layout.values if value else layout.keys
    width = layout.value_width if value else layout.key_width
    place = position % BLOCK * (width if value else 1)
    for head in range(count):
        begin, offset = at + head * width, offset_in_block(layout, layer, head, value) + place
        to, stride = (2 * block if layout.half else block) + offset, 1 if value else BLOCK
        if layout.half:
            for i in range(width):
                halves[to + i * stride] = float_to_half(x[begin + i])
        elif value:
            copy_floats(x, begin, kv, to, width)
        else:
            for i in range(width):
                kv[to + i * stride] = x[begin + i]


ROWS_PER_CHUNK = 16
"""Rows of a chunk, at most."""


@chunk_phase
def _attend_chunks(
    chunk: int, layout: KVLayout, H: int, layer: int, inputs: AttentionInputs, q: Any, size: int, p: Any,
    out: Any, row_count: int, each: int,
) -> None:  # fmt: skip
    cuts = layout.values // each
    n, head = chunk // cuts * row_count, chunk % cuts * each
    rows, heads = (n, min(n + row_count, inputs.positions.size)), (head, head + each)
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
    p = floats_at(stack_alloc(scratch_floats(layout)), scratch_floats(layout))
    row_count = min(ROWS_PER_CHUNK, max(1, count // (2 * threads)))
    each = heads_per_chunk(layout.values, count, threads)
    chunks = (count + row_count - 1) // row_count * (layout.values // each)
    return _attend_chunks(
        queue, phase, chunks, layout, H, layer, inputs, work.qkv, size, p, work.mixed, row_count, each
    )
