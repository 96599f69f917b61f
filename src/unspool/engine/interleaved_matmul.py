"""Matrix products with interleaved quantised weights: INT8 and ggml's formats (`interleaved_formats`).

    w_oi = d_os · q_oi + m_os,     y_no = Σ_s (d_os Σ_{i in s} q_oi · x_ni + m_os Σ_{i in s} x_ni)

with subgroups s of 16 to 64 inputs. 16 rows of w are multiplied with up to eight rows of x at a time: by
exact dot products of bytes if the processor has them (`VnniProduct`), else in float32 (`Float32Product`). In
both cases a row's sums are bit-identical in any batch. Before a product each row of x is prepared once, for
all threads: a record of some words for every group of 64 inputs.

Each format is compiled separately when a model first needs it, and called by its address (`weight_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.interleaved_formats import (
    GROUP,
    LAYOUTS,
    WORDS,
    Layout,
    Place,
    group_bytes,
    load_at,
    place_of_group,
)
from unspool.engine.kernel import (
    INT64_ZERO,
    bytes_at,
    floats_at,
    inline_kernel,
    kernel,
    llvm_intrinsic,
    stack_alloc,
)
from unspool.engine.simd import (
    BOUNDSCHECK,
    FLOAT,
    FLOATS,
    INT,
    WIDTH,
    int_constant,
    llvm_fma,
    llvm_prefetch,
    llvm_splat,
    load,
    store,
    store_as,
    vadd,
    vsum,
)
from unspool.engine.simd_bytes import DIGIT_RECORD, HAS_VNNI, SCALE, SUMS, dot_bytes, split_digits
from unspool.engine.weight_formats import SIDE, WeightFormat

VECTORS_PER_ROW = SIDE // WIDTH
"""Vectors that hold one sum for each of the interleaved rows."""
SUM_OF_SUBGROUP = {4: 0, 2: 4, 1: 6}
"""Subgroups of a group → where the sums of x over them begin: over quarters, over halves, over all."""


# The product of one group, as a generator of LLVM code:
#
#     record    words of a prepared group of x; the sums of x over subgroups begin at `sums`
#     at_once   rows of x that are multiplied with a group before the next rows, which find it in the cache
#     prepare   the kernel that writes the record of one whole group of x
#     add       totals += (d · q + m) · x for the group of w that `place_at` (first row → Place) returns,
#               and the record of each row of x. `totals` holds the stack slots of the vectors of each row of
#               x; an element of a vector is the sum of one of the interleaved rows of w.


def _own(builder: Any, x: Any, record: Any, word: int, kind: Any) -> Any:
    """A word of a record, in all elements of a vector."""
    return llvm_splat(builder, load_at(builder, x, builder.add(record, record.type(word)), kind))


class VnniProduct:
    """Dot products of bytes: rows of x are split into two digits (`simd_bytes`). Integer sums are exact.

        x_ni ≈ scale_ng · a_ni,   a_ni = 2⁸ high_ni + low_ni
        y_no = Σ_g scale_ng Σ_s (d_os (2⁸ Σ q_oi · high_ni + Σ q_oi · low_ni) + m_os Σ a_ni)

    For processors with VNNI, on which several rows take half the time of `Float32Product`.
    """

    record, sums, at_once = DIGIT_RECORD, SUMS, 8
    prepare = staticmethod(split_digits)

    def add(
        self, builder: Any, layout: Layout, place_at: Callable[[int], Place], x: Any, records: list[Any],
        totals: list[list[Any]],
    ) -> None:  # fmt: skip
        """Two sums for each row of x and subgroup, then their total."""
        place, words = place_at(0), WORDS // layout.subgroups
        group: list[Any] = [None] * len(records)
        for s in range(layout.subgroups):
            low, high = ([int_constant(0)] * len(records) for _ in range(2))
            for word in range(s * words, (s + 1) * words):
                codes = layout.codes(place, word)
                for r, record in enumerate(records):
                    low[r] = dot_bytes(builder, low[r], codes, _own(builder, x, record, word, INT))
                    high[r] = dot_bytes(builder, high[r], codes, _own(builder, x, record, WORDS + word, INT))
            d, m = layout.scales(place, s)
            if m is None:
                m = builder.fmul(d, ir.Constant(FLOATS, [-float(layout.zero)] * WIDTH))
            for r, record in enumerate(records):
                whole = builder.add(builder.shl(high[r], int_constant(8)), low[r])
                own = _own(builder, x, record, self.sums + SUM_OF_SUBGROUP[layout.subgroups] + s, FLOAT)
                shifted = builder.fmul(m, own) if group[r] is None else llvm_fma(builder, m, own, group[r])
                group[r] = llvm_fma(builder, d, builder.sitofp(whole, FLOATS), shifted)
        for record, (total,), it in zip(records, totals, group, strict=True):
            scale = _own(builder, x, record, SCALE, FLOAT)
            builder.store(llvm_fma(builder, it, scale, builder.load(total)), total)


@inline_kernel
def _copy_group(x: Any, at: int, record: Any, to: int) -> None:
    """Copy 64 inputs, and write their sums over quarters, halves, and all."""
    for i in range(0, GROUP, WIDTH):
        store(record, to + i, load(x, at + i))
    sums = to + GROUP
    for quarter in range(4):
        begin = at + quarter * GROUP // 4
        vector = load(x, begin)
        for i in range(WIDTH, GROUP // 4, WIDTH):
            vector = vadd(vector, load(x, begin + i))
        record[sums + quarter] = vsum(vector)
    record[sums + 4], record[sums + 5] = record[sums] + record[sums + 1], record[sums + 2] + record[sums + 3]
    record[sums + 6] = record[sums + 4] + record[sums + 5]


SUMS_AT_ONCE = 2
"""Independent sums of a subgroup."""


class Float32Product:
    """Products in float32: codes are converted on the fly, for processors without VNNI.

    Within a subgroup, even i and odd i are two sums for any number of rows of x, so that the processor can
    compute both at the same time.
    """

    record, sums, at_once = GROUP + 7, GROUP, 4 if VECTORS_PER_ROW == 1 else 2
    prepare = staticmethod(_copy_group)

    def add(
        self, builder: Any, layout: Layout, place_at: Callable[[int], Place], x: Any, records: list[Any],
        totals: list[list[Any]],
    ) -> None:  # fmt: skip
        """One vector of rows of w after another."""
        words, zeros = WORDS // layout.subgroups, ir.Constant(FLOATS, [0.0] * WIDTH)
        for h, s in ((h, s) for h in range(VECTORS_PER_ROW) for s in range(layout.subgroups)):
            place = place_at(h * WIDTH)
            sums = [[zeros] * SUMS_AT_ONCE for _ in records]
            for word in range(s * words, (s + 1) * words):
                codes = layout.codes(place, word)
                for j in range(4):
                    numbers = code_numbers(builder, codes, j, layout.zero)
                    for r, record in enumerate(records):
                        own, k = _own(builder, x, record, 4 * word + j, FLOAT), j % SUMS_AT_ONCE
                        sums[r][k] = llvm_fma(builder, numbers, own, sums[r][k])
            d, m = layout.scales(place, s)
            for record, total, some in zip(records, totals, sums, strict=True):
                it = llvm_fma(builder, builder.fadd(*some), d, builder.load(total[h]))
                if m is not None:
                    at = self.sums + SUM_OF_SUBGROUP[layout.subgroups] + s
                    it = llvm_fma(builder, m, _own(builder, x, record, at, FLOAT), it)
                builder.store(it, total[h])


def code_numbers(builder: Any, codes: Any, j: int, zero: int) -> Any:
    """The j-th code of every element minus `zero`, as float32."""
    byte = builder.and_(builder.lshr(codes, int_constant(8 * j)), int_constant(255))
    return builder.sitofp(builder.sub(byte, int_constant(zero)), FLOATS)


def tile_of(R: int, layout: Layout, group_product: VnniProduct | Float32Product) -> Callable[..., Any]:
    """The kernel for R rows of x.

    Its arguments: w, the offset of the first group and the distance to prefetch; x, the offset of its first
    row and the stride of its rows; the number of groups; y, the offset of the first sum and the stride of
    its rows.
    """
    record, at_once, size = group_product.record, group_product.at_once, group_bytes(layout.kind)

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
                if R > 4:
                    soon = builder.add(builder.add(w_start, ahead), builder.mul(g, kind(size)))
                    for line in range(0, size, 64):
                        llvm_prefetch(builder, builder.gep(w_data, [builder.add(soon, kind(line))]))
                records = [builder.add(row, builder.mul(g, kind(record))) for row in rows]

                def place_at(row: int) -> Place:
                    return place_of_group(builder, layout, w_data, w_start, g, kind(row))

                for r in range(0, R, at_once):
                    some = slice(r, r + at_once)
                    group_product.add(builder, layout, place_at, x_data, records[some], totals[some])
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
            or w_start + groups * size > w.size
            or x_start + (R - 1) * x_stride + groups * record > x.size
            or y_start + (R - 1) * y_stride + SIDE > y.size
        ):
            raise IndexError("a tile is outside an array")
        _tile(w, w_start, ahead, x, x_start, x_stride, groups, y, y_start, y_stride)

    return tile


def restore_of(layout: Layout) -> Callable[..., Any]:
    """The kernel that writes one of the interleaved rows, from byte `start` on, to y in float32."""

    @llvm_intrinsic
    def restore(_: Any, w: Any, start: Any, row: Any, inputs: Any, y: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            w_data, y_data = (
                context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 4)
            )
            _, start, row, inputs, _ = args
            kind, words = start.type, WORDS // layout.subgroups
            first = builder.and_(row, kind(-WIDTH))
            element = builder.trunc(builder.sub(row, first), INT)
            groups = builder.udiv(builder.add(inputs, kind(GROUP - 1)), kind(GROUP))
            with cgutils.for_range_slice(builder, kind(0), groups, kind(1), kind) as (g, _):
                place = place_of_group(builder, layout, w_data, start, g, first)
                for word in range(WORDS):
                    codes = layout.codes(place, word)
                    d, m = layout.scales(place, word // words)
                    for j in range(4):
                        numbers = code_numbers(builder, codes, j, layout.zero)
                        numbers = builder.fmul(numbers, d) if m is None else llvm_fma(builder, numbers, d, m)
                        i = builder.add(builder.mul(g, kind(GROUP)), kind(4 * word + j))
                        with builder.if_then(builder.icmp_unsigned("<", i, inputs)):
                            number = builder.extract_element(numbers, element)
                            builder.store(number, builder.gep(y_data, [i]))
            return context.get_dummy_value()

        return types.void(w, types.int64, types.int64, types.int64, y), build

    return restore


PREFETCH_GROUPS = 2
"""Groups of w that are prefetched."""
MAX_ROWS_PER_TILE = 8
"""Rows of x in a tile, at most."""
GROUP_PRODUCT = VnniProduct() if HAS_VNNI else Float32Product()
INPUT_RECORD, _prepare_group = GROUP_PRODUCT.record, GROUP_PRODUCT.prepare
ZERO = np.float32(0)
INT64_GROUP: Any = np.int64(GROUP)
INT64_TILE: Any = np.int64(MAX_ROWS_PER_TILE * SIDE)
"""Sizes for `stack_alloc`, which must not be literals."""


@inline_kernel
def count_groups(inputs: int) -> int:
    """Groups of a row, including a padded last one."""
    return (inputs + GROUP - 1) // GROUP


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


def product_of(kind: WeightFormat) -> Callable[..., None]:
    """The function of a format that `matmul` calls by its address."""
    layout, size = LAYOUTS[kind], group_bytes(kind)
    eight, four, three, two, one = (
        tile_of(R, layout, GROUP_PRODUCT) for R in (MAX_ROWS_PER_TILE, 4, 3, 2, 1)
    )
    restore = restore_of(layout)

    @kernel
    def multiply_tile(
        w: Any, at: int, x: Any, n: int, count: int, groups: int, y: Any, y_start: int, y_stride: int
    ) -> None:
        """`count` rows of x, from the n-th on, with the interleaved rows of w at byte `at`."""
        x_stride = groups * INPUT_RECORD
        ahead = groups * size if n else PREFETCH_GROUPS * size
        if count == MAX_ROWS_PER_TILE:
            eight(w, at, ahead, x, n * x_stride, x_stride, groups, y, y_start, y_stride)
        elif count == 4:
            four(w, at, ahead, x, n * x_stride, x_stride, groups, y, y_start, y_stride)
        elif count == 3:
            three(w, at, ahead, x, n * x_stride, x_stride, groups, y, y_start, y_stride)
        elif count == 2:
            two(w, at, ahead, x, n * x_stride, x_stride, groups, y, y_start, y_stride)
        else:
            one(w, at, ahead, x, n * x_stride, x_stride, groups, y, y_start, y_stride)

    def multiply(
        address: int, inputs: int, x_at: int, rows: int, y_at: int, width: int, first: int, last: int
    ) -> None:
        """The outputs first … last − 1 of all prepared rows; row `first` of w unpacked if x_at is 0."""
        groups = count_groups(inputs)
        w = bytes_at(address, (last + SIDE - 1) // SIDE * groups * size)
        if x_at == 0:
            restore(w, first // SIDE * groups * size, first % SIDE, inputs, floats_at(y_at, inputs))
            return
        x, y = floats_at(x_at, rows * groups * INPUT_RECORD), floats_at(y_at, (rows - 1) * width + last)
        partial = floats_at(stack_alloc(INT64_TILE), MAX_ROWS_PER_TILE * SIDE)
        for begin in range(first // SIDE * SIDE, last, SIDE):
            at, low, high = begin // SIDE * groups * size, max(first, begin), min(last, begin + SIDE)
            n = INT64_ZERO
            while n < rows:
                count = MAX_ROWS_PER_TILE if rows - n >= MAX_ROWS_PER_TILE else min(4, rows - n)
                out, to, stride = y, n * width + begin, width
                if high - low < SIDE:
                    out, to, stride = partial, INT64_ZERO, INT64_ZERO + SIDE
                multiply_tile(w, at, x, n, count, groups, out, to, stride)
                for r in range(count if high - low < SIDE else INT64_ZERO):
                    for o in range(low, high):
                        y[(n + r) * width + o] = partial[r * SIDE + o - begin]
                n += count

    return multiply
