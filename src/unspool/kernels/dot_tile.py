"""Many dot products at once: R vectors with C others, R · C = WIDTH, each sum in the order of `lanes`.

    y[r, c] = Σ_i w[c, i] · x[r, i]

R + C loads serve R · C products, and the WIDTH sums of lanes that are left in the end are folded together:
halves of two of them make one register, so that the last one holds all sums side by side. One by one they
would take several times as long, and for short vectors longer than the products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation, small_kernel
from unspool.kernels.lanes import CHECKED, FLOAT, FLOATS, INT, WIDTH, fused_lanes


def _together(builder: Any, sums: Sequence[Any]) -> Any:
    """WIDTH registers to one, which holds the total of each, in their order."""
    size = WIDTH
    while len(sums) > 1:
        half, groups = size // 2, WIDTH // size
        low = [base * size + lane for base in range(2 * groups) for lane in range(half)]
        kinds = [ir.Constant(ir.VectorType(INT, WIDTH), [it + more for it in low]) for more in (0, half)]
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [builder.fadd(*(builder.shuffle_vector(a, b, kind) for kind in kinds)) for a, b in pairs]
        size = half
    return sums[0]


def tile_of(R: int, C: int) -> Callable[..., Any]:
    """The kernel for R vectors of x and C of w.

    It is given w, where in it the first vector begins and how far apart they are, x in the same way, the
    length of all vectors (a multiple of WIDTH), how many of their numbers are added up before they join the
    sum, y and where in it the first number belongs, and how far apart its rows are.
    """

    @operation
    def _tile(
        _: Any, w: Any, at: Any, apart: Any, x: Any, by: Any, between: Any, length: Any, group: Any, y: Any,
        to: Any, below: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(which: int) -> Any:
                return context.make_array(signature.args[which])(context, builder, args[which]).data

            def lanes(pointer: Any, index: Any) -> Any:
                where = builder.bitcast(builder.gep(pointer, [index]), FLOATS.as_pointer())
                found = builder.load(where)
                found.align = 4
                return found

            def places(begin: Any, stride: Any, count: int) -> list[Any]:
                whole = begin.type
                return [builder.add(begin, builder.mul(stride, whole(k))) for k in range(count)]

            _, at, apart, _, by, between, length, group, _, to, below = args
            w_data, x_data, y_data, nought = data(0), data(3), data(8), ir.Constant(FLOATS, [0.0] * WIDTH)
            rows_of_w, rows_of_x = places(at, apart, C), places(by, between, R)
            whole = [cgutils.alloca_once_value(builder, nought) for _ in range(R * C)]
            part = [cgutils.alloca_once_value(builder, nought) for _ in range(R * C)]
            with cgutils.for_range_slice(builder, length.type(0), length, group, length.type) as (start, _):
                for it in part:
                    builder.store(nought, it)
                stop = builder.add(start, group)
                stop = builder.select(builder.icmp_signed("<", stop, length), stop, length)
                step = length.type(WIDTH)
                with cgutils.for_range_slice(builder, start, stop, step, length.type) as (i, _):
                    near = [lanes(w_data, builder.add(row, i)) for row in rows_of_w]
                    for r, row in enumerate(rows_of_x):
                        mine = lanes(x_data, builder.add(row, i))
                        for c, other in enumerate(near):
                            place = part[r * C + c]
                            builder.store(fused_lanes(builder, other, mine, builder.load(place)), place)
                for it, new in zip(whole, part, strict=True):
                    builder.store(builder.fadd(builder.load(it), builder.load(new)), it)
            totals = _together(builder, [builder.load(it) for it in whole])
            some = ir.VectorType(FLOAT, C)
            for r, place in enumerate(places(to, below, R)):
                order = ir.Constant(ir.VectorType(INT, C), list(range(r * C, (r + 1) * C)))
                row = builder.shuffle_vector(totals, ir.Constant(FLOATS, ir.Undefined), order)
                where = builder.bitcast(builder.gep(y_data, [place]), some.as_pointer())
                builder.store(row, where, align=4)
            return context.get_dummy_value()

        whole = types.intp
        return types.void(w, whole, whole, x, whole, whole, whole, whole, y, whole, whole), build

    @small_kernel
    def tile(
        w: Any, at: int, apart: int, x: Any, by: int, between: int, length: int, group: int, y: Any, to: int,
        below: int,
    ) -> None:  # fmt: skip
        if CHECKED and (
            min(at, by, to) < 0
            or at + (C - 1) * apart + length > w.size
            or by + (R - 1) * between + length > x.size
            or to + (R - 1) * below + C > y.size
        ):
            raise IndexError("a tile reaches outside an array")
        _tile(w, at, apart, x, by, between, length, group, y, to, below)

    return tile
