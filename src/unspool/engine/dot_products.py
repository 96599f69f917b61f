"""Tiles of dot products: R rows of x with C rows of w at once, each sum in the order of `simd`.

    y[r, c] = Σ_i w[c, i] · x[r, i]

R + C loads serve R · C products. The R · C ≤ WIDTH partial sums are reduced together: two vectors are folded
into one until one vector holds all sums. Reducing them one by one takes several times as long, and for short
rows longer than the products.

The C rows of w may be neighbours or far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.kernel import inline_kernel, llvm_intrinsic
from unspool.engine.simd import BOUNDSCHECK, FLOATS, INT, WIDTH, llvm_fma, load_as, store_as

ZERO_VECTOR = ir.Constant(FLOATS, [0.0] * WIDTH)


def _reduce_to_vector(builder: Any, sums: Sequence[Any]) -> Any:
    """Reduce up to WIDTH vectors to one vector that holds their sums, in order."""
    sums, size = [*sums, *[ZERO_VECTOR] * (WIDTH - len(sums))], WIDTH
    while len(sums) > 1:
        half, groups = size // 2, WIDTH // size
        low = [base * size + element for base in range(2 * groups) for element in range(half)]
        orders = [ir.Constant(ir.VectorType(INT, WIDTH), [it + more for it in low]) for more in (0, half)]
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [builder.fadd(*(builder.shuffle_vector(a, b, order) for order in orders)) for a, b in pairs]
        size = half
    return sums[0]


def _offsets(builder: Any, begin: Any, stride: Any, count: int) -> list[Any]:
    return [builder.add(begin, builder.mul(stride, begin.type(k))) for k in range(count)]


def _accumulate(
    builder: Any, group: int | None, w: Any, ws: list[Any], x: Any, xs: list[Any], length: Any
) -> list[Any]:
    """The partial sums of all products of the rows at offsets `ws` and `xs`, those of xs[0] first."""
    C, kind = len(ws), length.type
    total_slots = [cgutils.alloca_once_value(builder, ZERO_VECTOR) for _ in range(len(xs) * C)]
    part_slots = [cgutils.alloca_once_value(builder, ZERO_VECTOR) for _ in total_slots]
    group_size = length if group is None else kind(group)
    # If the length is 0, a step of 0 would never end.
    step = builder.select(builder.icmp_signed("<", group_size, kind(WIDTH)), kind(WIDTH), group_size)
    with cgutils.for_range_slice(builder, kind(0), length, step, kind) as (start, _):
        for slot in part_slots:
            builder.store(ZERO_VECTOR, slot)
        left = builder.sub(length, start)
        size = builder.select(builder.icmp_signed("<", group_size, left), group_size, left)
        w_starts, x_starts = ([builder.add(row, start) for row in rows] for rows in (ws, xs))
        with cgutils.for_range_slice(builder, kind(0), size, kind(WIDTH), kind) as (i, _):
            w_vectors = [_load(builder, w, builder.add(begin, i)) for begin in w_starts]
            for r, begin in enumerate(x_starts):
                x_vector = _load(builder, x, builder.add(begin, i))
                for slot, w_vector in zip(part_slots[r * C : (r + 1) * C], w_vectors, strict=True):
                    builder.store(llvm_fma(builder, w_vector, x_vector, builder.load(slot)), slot)
        for total, part in zip(total_slots, part_slots, strict=True):
            builder.store(builder.fadd(builder.load(total), builder.load(part)), total)
    return [builder.load(slot) for slot in total_slots]


def _load(builder: Any, data: Any, index: Any) -> Any:
    return load_as(builder, builder.gep(data, [index]), FLOATS)


def _store(builder: Any, totals: Any, rows: list[Any], column_stride: Any, C: int, y: Any) -> None:
    """Store the totals `column_stride` apart in y; None: C neighbours of one row are stored at once."""
    for r, row in enumerate(rows):
        if column_stride is None:
            order = ir.Constant(ir.VectorType(INT, C), list(range(r * C, (r + 1) * C)))
            some = builder.shuffle_vector(totals, ir.Constant(FLOATS, ir.Undefined), order)
            store_as(builder, builder.gep(y, [row]), some)
            continue
        for c, place in enumerate(_offsets(builder, row, column_stride, C)):
            builder.store(builder.extract_element(totals, INT(r * C + c)), builder.gep(y, [place]))


def tile_of(R: int, C: int, group: int | None = None, neighbours: bool = False) -> Callable[..., Any]:
    """The kernel for R rows of x and C rows of w, R · C ≤ WIDTH.

    `group` numbers are summed before they are added to the total (None: all of them).

    Its arguments: w, the offset of its first row and the stride of its rows; the same for x; the length of
    all rows (a multiple of WIDTH); y, the offset of the first result, and the strides in y of the results of
    two rows of w and of two rows of x. With `neighbours` the former is 1, and the results of a row of x are
    stored at once.
    """

    @llvm_intrinsic
    def _tile(
        _: Any, w: Any, w_start: Any, w_stride: Any, x: Any, x_start: Any, x_stride: Any, length: Any, y: Any,
        y_start: Any, y_step: Any, y_stride: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(which: int) -> Any:
                return context.make_array(signature.args[which])(context, builder, args[which]).data

            _, w_start, w_stride, _, x_start, x_stride, length, _, y_start, y_step, y_stride = args
            ws, xs = _offsets(builder, w_start, w_stride, C), _offsets(builder, x_start, x_stride, R)
            totals = _reduce_to_vector(builder, _accumulate(builder, group, data(0), ws, data(3), xs, length))
            rows = _offsets(builder, y_start, y_stride, R)
            _store(builder, totals, rows, None if neighbours else y_step, C, data(7))
            return context.get_dummy_value()

        int_ = types.intp
        return types.void(w, int_, int_, x, int_, int_, int_, y, int_, int_, int_), build

    @inline_kernel
    def tile(
        w: Any, w_start: int, w_stride: int, x: Any, x_start: int, x_stride: int, length: int, y: Any,
        y_start: int, y_step: int, y_stride: int,
    ) -> None:  # fmt: skip
        if BOUNDSCHECK and (
            min(w_start, x_start, y_start) < 0
            or w_start + (C - 1) * w_stride + length > w.size
            or x_start + (R - 1) * x_stride + length > x.size
            or y_start + (R - 1) * y_stride + (C - 1) * y_step >= y.size
            or (neighbours and y_step != 1)
        ):
            raise IndexError("a tile is outside an array")
        _tile(w, w_start, w_stride, x, x_start, x_stride, length, y, y_start, y_step, y_stride)

    return tile
