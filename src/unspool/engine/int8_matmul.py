"""Matrix products with INT8 weights: groups of 64 inputs with a scale.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

16 rows of w are interleaved (`weight_formats`) and multiplied with up to eight rows of x at a time: by exact
dot products of bytes if the processor has them (`VnniProduct`), else in float32 (`Float32Product`). In both
cases a row's sums are bit-identical in any batch. Before a product each row of x is prepared once, for all
threads: a record of some words for every group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.dense_matmul import Outputs
from unspool.engine.kernel import INT64_ZERO, floats_at, inline_kernel, kernel, llvm_intrinsic, stack_alloc
from unspool.engine.simd import (
    BOUNDSCHECK,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    WIDTH,
    int_constant,
    llvm_fma,
    llvm_prefetch,
    llvm_splat,
    load,
    load_as,
    store,
    store_as,
)
from unspool.engine.simd_bytes import (
    DIGIT_RECORD,
    DIGITS,
    HAS_VNNI,
    SCALE,
    SHIFTS,
    WORDS,
    ZERO_BYTE,
    dot_bytes,
    load_float32,
    split_digits,
)

INTERLEAVED_ROWS, GROUP = 16, 64
"""Interleaved rows of w, and inputs of a group."""
GROUP_BYTES, CODES_OFFSET = 1088, 64
"""Bytes of a group of the interleaved rows: their scales, then, from CODES_OFFSET on, their codes."""
WORD_BYTES = 4 * INTERLEAVED_ROWS
"""Bytes of four inputs of the interleaved rows."""
VECTORS_PER_ROW = INTERLEAVED_ROWS // WIDTH
"""Vectors that hold one sum for each of the interleaved rows."""


def load_at(builder: Any, data: Any, index: Any, kind: Any) -> Any:
    """Load a value of this type at data[index]."""
    return load_as(builder, builder.gep(data, [index]), kind)


def tile_of(R: int, group_product: VnniProduct | Float32Product) -> Callable[..., Any]:
    """The kernel for R rows of x.

    Its arguments: w, the offset of the first group and the distance to prefetch; x, the offset of its first
    row and the stride of its rows; the number of groups; y, the offset of the first sum and the stride of
    its rows.
    """
    record, at_once = group_product.record, group_product.at_once

    @llvm_intrinsic
    def _tile(
        _: Any, w: Any, w_start: Any, ahead: Any, x: Any, x_start: Any, x_stride: Any, groups: Any, y: Any,
        y_start: Any, y_stride: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            w_data, x_data, y_data = (
                context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 3, 7)
            )
            _, w_start, ahead, _, x_start, x_stride, groups, _, y_start, y_stride = args
            kind, zeros = w_start.type, ir.Constant(FLOATS, [0.0] * WIDTH)
            rows = [builder.add(x_start, builder.mul(x_stride, kind(r))) for r in range(R)]
            totals = [
                [cgutils.alloca_once_value(builder, zeros) for _ in range(VECTORS_PER_ROW)] for _ in rows
            ]
            with cgutils.for_range_slice(builder, kind(0), groups, kind(1), kind) as (g, _):
                records = [builder.add(row, builder.mul(g, kind(record))) for row in rows]
                begin = builder.add(w_start, builder.mul(g, kind(GROUP_BYTES)))
                for r in range(0, R, at_once):
                    some, soon = slice(r, r + at_once), ahead if at_once < R and r == 0 else None
                    group_product.add(builder, w_data, begin, soon, x_data, records[some], totals[some])
            for r, registers in enumerate(totals):
                row = builder.add(y_start, builder.mul(y_stride, kind(r)))
                for h, total in enumerate(registers):
                    where = builder.gep(y_data, [builder.add(row, kind(h * WIDTH))])
                    store_as(builder, where, builder.load(total))
            return context.get_dummy_value()

        number = types.intp
        return types.void(w, number, number, x, number, number, number, y, number, number), build

    @inline_kernel
    def tile(
        w: Any, w_start: int, ahead: int, x: Any, x_start: int, x_stride: int, groups: int, y: Any,
        y_start: int, y_stride: int,
    ) -> None:  # fmt: skip
        if BOUNDSCHECK and (
            min(w_start, x_start, y_start) < 0
            or w_start + groups * GROUP_BYTES > w.size
            or x_start + (R - 1) * x_stride + groups * record > x.size
            or y_start + (R - 1) * y_stride + INTERLEAVED_ROWS > y.size
        ):
            raise IndexError("a tile is outside an array")
        _tile(w, w_start, ahead, x, x_start, x_stride, groups, y, y_start, y_stride)

    return tile


# The product of one group, as a generator of LLVM code:
#
#     record    words of a prepared group of x
#     at_once   rows of x that are multiplied with a group before the next rows, which find it in the cache
#     prepare   the kernel that writes the record of one whole group of x
#     add       totals += s · q · x for w's group at byte `at` and the record of each row of x. `totals` holds
#               the stack slots of the vectors of each row of x; an element of a vector is the sum of one of
#               the interleaved rows of w. If `ahead` is not None, memory so many bytes ahead is prefetched.

UNROLL = 4
"""Words of w in one iteration of the inner loop."""


class VnniProduct:
    """Dot products of bytes: rows of x are split into digits (`simd_bytes`); all sums of a group are exact.

        y_no = Σ_g s_og · 2^(e_ng − 21) · Σ_d 2^(8d) Σ_{i in g} q_oi · a_nid

    For processors with VNNI, on which several rows take half the time of `Float32Product`. A stored byte is
    q + 128, which adds 128 Σ_i a_nid to every sum, so each sum starts at minus that.
    """

    record, at_once = DIGIT_RECORD, 4
    prepare = staticmethod(split_digits)

    def add(
        self, builder: Any, w: Any, at: Any, ahead: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """One sum for each digit of each row of x, then their total."""
        kind, sums = at.type, [[cgutils.alloca_once(builder, INTS) for _ in range(DIGITS)] for _ in records]
        for record, places in zip(records, sums, strict=True):
            for d, place in enumerate(places):
                begin = load_at(builder, x, builder.add(record, kind(SHIFTS + d)), INT)
                builder.store(llvm_splat(builder, begin), place)
        with cgutils.for_range_slice(builder, kind(0), kind(WORDS), kind(UNROLL), kind) as (first, _):
            for k in (builder.add(first, kind(more)) for more in range(UNROLL)):
                if ahead is not None:
                    llvm_prefetch(builder, builder.gep(w, [builder.add(_word_offset(builder, at, k), ahead)]))
                codes = load_at(builder, w, _word_offset(builder, at, k), INTS)
                for record, places in zip(records, sums, strict=True):
                    for d, place in enumerate(places):
                        begin = builder.add(builder.add(record, kind(d * WORDS)), k)
                        four = llvm_splat(builder, load_at(builder, x, begin, INT))
                        builder.store(dot_bytes(builder, builder.load(place), codes, four), place)
        scales = load_at(builder, w, at, FLOATS)
        for record, places, (total,) in zip(records, sums, totals, strict=True):
            own = load_at(builder, x, builder.add(record, kind(SCALE)), FLOAT)
            scale = builder.fmul(scales, llvm_splat(builder, own))
            sum_ = _join_digits(builder, *(builder.load(place) for place in places))
            builder.store(llvm_fma(builder, sum_, scale, builder.load(total)), total)


def _word_offset(builder: Any, at: Any, k: Any) -> Any:
    kind = at.type
    return builder.add(builder.add(at, kind(CODES_OFFSET)), builder.mul(k, kind(WORD_BYTES)))


def _join_digits(builder: Any, low: Any, middle: Any, high: Any) -> Any:
    """low + 2⁸ middle + 2¹⁶ high as float32; middle + 2⁸ high is below 2²⁹."""
    above = builder.sitofp(builder.add(builder.shl(high, int_constant(8)), middle), FLOATS)
    return llvm_fma(builder, above, ir.Constant(FLOATS, [256.0] * WIDTH), builder.sitofp(low, FLOATS))


MAX_ROWS_AT_ONCE, SUMS_PER_GROUP = 2, 2
"""Rows of x that are multiplied with all rows of w at once, at most, and independent sums of a group."""


@inline_kernel
def _copy_group(x: Any, at: int, record: Any, to: int) -> None:
    for i in range(0, GROUP, WIDTH):
        store(record, to + i, load(x, at + i))


class Float32Product:
    """Products in float32: codes are converted on the fly, for processors without VNNI.

        y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

    Within a group, even i and odd i are two sums for any number of rows of x, so that the processor can
    compute both at the same time.
    """

    record, at_once = GROUP, 4 if WIDTH == INTERLEAVED_ROWS else MAX_ROWS_AT_ONCE
    prepare = staticmethod(_copy_group)

    def add(
        self, builder: Any, w: Any, at: Any, _: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """All rows of w at once for a few rows of x, else one vector of rows after another."""
        count = VECTORS_PER_ROW if len(records) <= MAX_ROWS_AT_ONCE else 1
        for h in range(0, VECTORS_PER_ROW, count):
            self._add(builder, w, at, range(h, h + count), x, records, totals)

    def _add(
        self, builder: Any, w: Any, at: Any, some: range, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """The rows of w whose sums are in these vectors. Prefetching does not help here."""
        kind = at.type
        pairs = [(record, total, h) for record, total in zip(records, totals, strict=True) for h in some]
        sums = {
            (r, j): cgutils.alloca_once(builder, FLOATS)
            for r in range(len(pairs))
            for j in range(SUMS_PER_GROUP)
        }
        for place in sums.values():
            builder.store(ir.Constant(FLOATS, [0.0] * WIDTH), place)
        with cgutils.for_range_slice(builder, kind(0), kind(GROUP // 4), kind(1), kind) as (k, _):
            begin = builder.add(builder.add(at, kind(CODES_OFFSET)), builder.mul(k, kind(WORD_BYTES)))
            codes = {h: load_at(builder, w, builder.add(begin, kind(4 * h * WIDTH)), INTS) for h in some}
            for j in range(4):
                numbers = {h: _codes_to_floats(builder, codes[h], j) for h in some}
                i = builder.add(builder.mul(k, kind(4)), kind(j))
                for r, (record, _, h) in enumerate(pairs):
                    own = llvm_splat(builder, load_at(builder, x, builder.add(record, i), FLOAT))
                    place = sums[r, j % SUMS_PER_GROUP]
                    builder.store(llvm_fma(builder, numbers[h], own, builder.load(place)), place)
        for r, (_, total, h) in enumerate(pairs):
            scales = load_at(builder, w, builder.add(at, kind(4 * h * WIDTH)), FLOATS)
            sum_ = builder.fadd(*(builder.load(sums[r, j]) for j in range(SUMS_PER_GROUP)))
            builder.store(llvm_fma(builder, sum_, scales, builder.load(total[h])), total[h])


def _codes_to_floats(builder: Any, codes: Any, j: int) -> Any:
    """The j-th byte of every element, as a number."""
    byte = builder.and_(builder.lshr(codes, int_constant(8 * j)), int_constant(255))
    return builder.sitofp(builder.sub(byte, int_constant(ZERO_BYTE)), FLOATS)


PREFETCH_GROUPS = 2
"""Groups of w that are prefetched."""
MAX_ROWS_PER_TILE = 8
"""Rows of x in a tile, at most."""
GROUP_PRODUCT = VnniProduct() if HAS_VNNI else Float32Product()
INPUT_RECORD, _prepare_group = GROUP_PRODUCT.record, GROUP_PRODUCT.prepare
_eight, _four, _three, _two, _one = (tile_of(R, GROUP_PRODUCT) for R in (MAX_ROWS_PER_TILE, 4, 3, 2, 1))
ZERO = np.float32(0)
INT64_GROUP: Any = np.int64(GROUP)
INT64_TILE: Any = np.int64(MAX_ROWS_PER_TILE * INTERLEAVED_ROWS)
"""Sizes for `stack_alloc`, which must not be literals."""


class Inputs(NamedTuple):
    """Rows of x, and the same rows prepared for INT8 weights, if there are any."""

    x: Any
    prepared: Any


@inline_kernel
def count_groups(inputs: int) -> int:
    """Groups of a row, including a padded last one."""
    return (inputs + GROUP - 1) // GROUP


@inline_kernel
def total_bytes(outputs: int, inputs: int) -> int:
    """Bytes of a packed matrix."""
    return (outputs + INTERLEAVED_ROWS - 1) // INTERLEAVED_ROWS * count_groups(inputs) * GROUP_BYTES


@kernel
def prepare(x: Any, inputs: int, n: int, prepared: Any) -> None:
    """Write the records of row n of x."""
    groups, at = count_groups(inputs), n * inputs
    to = n * groups * INPUT_RECORD
    for g in range(inputs // GROUP):
        _prepare_group(x, at + g * GROUP, prepared, to + g * INPUT_RECORD)
    left = inputs % GROUP
    if left:
        last = floats_at(stack_alloc(INT64_GROUP), GROUP)
        for i in range(GROUP):
            last[i] = x[at + inputs - left + i] if i < left else ZERO
        _prepare_group(last, INT64_ZERO, prepared, to + (groups - 1) * INPUT_RECORD)


@kernel
def _multiply_tile(
    w: Any, at: int, prepared: Any, n: int, count: int, groups: int, y: Any, y_start: int, y_stride: int
) -> None:
    """`count` rows of x, from the n-th on, with the interleaved rows of w at byte `at`."""
    x_stride = groups * INPUT_RECORD
    ahead = groups * GROUP_BYTES if n else PREFETCH_GROUPS * GROUP_BYTES
    if count == MAX_ROWS_PER_TILE:
        _eight(w, at, ahead, prepared, n * x_stride, x_stride, groups, y, y_start, y_stride)
    elif count == 4:
        _four(w, at, ahead, prepared, n * x_stride, x_stride, groups, y, y_start, y_stride)
    elif count == 3:
        _three(w, at, ahead, prepared, n * x_stride, x_stride, groups, y, y_start, y_stride)
    elif count == 2:
        _two(w, at, ahead, prepared, n * x_stride, x_stride, groups, y, y_start, y_stride)
    else:
        _one(w, at, ahead, prepared, n * x_stride, x_stride, groups, y, y_start, y_stride)


@kernel
def product(w: Any, inputs: int, prepared: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All prepared rows of x with the rows of w from `first` to `last` − 1."""
    groups = count_groups(inputs)
    partial = floats_at(stack_alloc(INT64_TILE), MAX_ROWS_PER_TILE * INTERLEAVED_ROWS)
    for begin in range(first // INTERLEAVED_ROWS * INTERLEAVED_ROWS, last, INTERLEAVED_ROWS):
        at, low, high = (
            begin // INTERLEAVED_ROWS * groups * GROUP_BYTES,
            max(first, begin),
            min(last, begin + INTERLEAVED_ROWS),
        )
        n = INT64_ZERO
        while n < rows:
            count = MAX_ROWS_PER_TILE if rows - n >= MAX_ROWS_PER_TILE else min(4, rows - n)
            to = n * out.width + out.shift
            if high - low == INTERLEAVED_ROWS:
                _multiply_tile(w, at, prepared, n, count, groups, out.y, to + begin, out.width)
            else:
                _multiply_tile(w, at, prepared, n, count, groups, partial, INT64_ZERO, INTERLEAVED_ROWS)
                for r in range(count):
                    for o in range(low, high):
                        out.y[to + r * out.width + o] = partial[r * INTERLEAVED_ROWS + o - begin]
            n += count


@kernel
def restore_row(w: Any, number: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = row `number` of w in float32."""
    side = number % INTERLEAVED_ROWS
    for i in range(inputs):
        at = (number // INTERLEAVED_ROWS * count_groups(inputs) + i // GROUP) * GROUP_BYTES
        byte = w[at + CODES_OFFSET + i % GROUP // 4 * WORD_BYTES + 4 * side + i % 4]
        y[to + i] = (np.float32(byte) - np.float32(ZERO_BYTE)) * load_float32(w, at + 4 * side)
