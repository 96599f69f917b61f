"""Many dot products at once: R vectors with C others, each sum in the order of `lanes`.

    y[r, c] = Σ_i w[c, i] · x[r, i]

R + C loads serve R · C products, and the sums of lanes that are left in the end, at most WIDTH of them, are
folded together: halves of two of them make one register, so that the last one holds all sums side by side.
One by one they would take several times as long, and for short vectors longer than the products.

The C vectors of w may be neighbours or far apart. A `Layout` says how their numbers lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.kernel import operation, small_kernel
from unspool.engine.simd import CHECKED, FLOATS, INT, WIDTH, fused_lanes

NOUGHT = ir.Constant(FLOATS, [0.0] * WIDTH)


class Layout(Protocol):
    """How the numbers of w lie in groups, and how the sum of a group joins the whole, in values of LLVM."""

    group: int | None
    """Numbers that are added up before they join the sum; None: all of them."""
    whole_groups: bool
    """Whether there is no shorter group at the end."""

    def begin(self, builder: Any, row: Any, start: Any) -> Any:
        """Where in memory the group begins that has number `start` of a vector that begins at `row`."""

    def lanes(self, builder: Any, data: Any, begin: Any, i: Any) -> Any:
        """WIDTH numbers of that group, from its i-th on."""

    def joined(self, builder: Any, data: Any, begin: Any, part: Any, whole: Any) -> Any:
        """The sum with that of this group."""

    def end(self, row: int, length: int) -> int:
        """Where a vector's memory ends, for a look at bounds; a compiled function."""


def loaded(builder: Any, data: Any, index: Any) -> Any:
    """data[index : index + WIDTH] as a value of LLVM."""
    found = builder.load(builder.bitcast(builder.gep(data, [index]), FLOATS.as_pointer()))
    found.align = 4
    return found


class Singles:
    """Numbers in single precision, one after another."""

    whole_groups = False

    def __init__(self, group: int | None = None) -> None:
        self.group = group

    def begin(self, builder: Any, row: Any, start: Any) -> Any:
        """Nothing lies between groups."""
        return builder.add(row, start)

    def lanes(self, builder: Any, data: Any, begin: Any, i: Any) -> Any:
        """As they are."""
        return loaded(builder, data, builder.add(begin, i))

    def joined(self, builder: Any, data: Any, begin: Any, part: Any, whole: Any) -> Any:  # noqa: ARG002
        """whole + part."""
        return builder.fadd(whole, part)

    @staticmethod
    @small_kernel
    def end(row: int, length: int) -> int:
        """Behind its last number."""
        return row + length


def _together(builder: Any, sums: Sequence[Any]) -> Any:
    """Up to WIDTH registers to one, which holds the total of each, in their order."""
    sums, size = [*sums, *[NOUGHT] * (WIDTH - len(sums))], WIDTH
    while len(sums) > 1:
        half, groups = size // 2, WIDTH // size
        low = [base * size + lane for base in range(2 * groups) for lane in range(half)]
        kinds = [ir.Constant(ir.VectorType(INT, WIDTH), [it + more for it in low]) for more in (0, half)]
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [builder.fadd(*(builder.shuffle_vector(a, b, kind) for kind in kinds)) for a, b in pairs]
        size = half
    return sums[0]


def _places(builder: Any, begin: Any, stride: Any, count: int) -> list[Any]:
    return [builder.add(begin, builder.mul(stride, begin.type(k))) for k in range(count)]


def _sums(
    builder: Any, layout: Layout, w: Any, ws: list[Any], x: Any, xs: list[Any], length: Any
) -> list[Any]:
    """The lanes of every sum, of vectors that begin at `ws` and `xs`: those of xs[0] first."""
    C, kind = len(ws), length.type
    whole = [cgutils.alloca_once_value(builder, NOUGHT) for _ in range(len(xs) * C)]
    part = [cgutils.alloca_once_value(builder, NOUGHT) for _ in whole]
    group = length if layout.group is None else kind(layout.group)
    # A length of 0 has no group, and a step of 0 would never end.
    step = builder.select(builder.icmp_signed("<", group, kind(WIDTH)), kind(WIDTH), group)
    with cgutils.for_range_slice(builder, kind(0), length, step, kind) as (start, _):
        for it in part:
            builder.store(NOUGHT, it)
        size = group
        if not layout.whole_groups:
            left = builder.sub(length, start)
            size = builder.select(builder.icmp_signed("<", group, left), group, left)
        begins = [layout.begin(builder, row, start) for row in ws]
        mine = [builder.add(row, start) for row in xs]
        with cgutils.for_range_slice(builder, kind(0), size, kind(WIDTH), kind) as (i, _):
            near = [layout.lanes(builder, w, begin, i) for begin in begins]
            for r, row in enumerate(mine):
                lanes = loaded(builder, x, builder.add(row, i))
                for place, other in zip(part[r * C : (r + 1) * C], near, strict=True):
                    builder.store(fused_lanes(builder, other, lanes, builder.load(place)), place)
        for k, (it, new) in enumerate(zip(whole, part, strict=True)):
            found = layout.joined(builder, w, begins[k % C], builder.load(new), builder.load(it))
            builder.store(found, it)
    return [builder.load(it) for it in whole]


def _store(builder: Any, totals: Any, rows: list[Any], beside: Any, C: int, y: Any) -> None:
    """Each of the totals to its own place; C of one row at a time where there is nothing `beside` them."""
    for r, row in enumerate(rows):
        if beside is None:
            order = ir.Constant(ir.VectorType(INT, C), list(range(r * C, (r + 1) * C)))
            found = builder.shuffle_vector(totals, ir.Constant(FLOATS, ir.Undefined), order)
            builder.store(found, builder.bitcast(builder.gep(y, [row]), found.type.as_pointer()), align=4)
            continue
        for c, place in enumerate(_places(builder, row, beside, C)):
            builder.store(builder.extract_element(totals, INT(r * C + c)), builder.gep(y, [place]))


def tile_of(R: int, C: int, layout: Layout, neighbours: bool = False) -> Callable[..., Any]:
    """The kernel for R vectors of x and C of w, R · C ≤ WIDTH.

    It is given w, where in it the first vector begins and how far apart they are, x in the same way, the
    length of all vectors (a multiple of WIDTH), y and where in it the first number belongs, how far apart the
    numbers of two vectors of w are there, and of two of x. Where the former are `neighbours`, 1 apart, those
    of a vector of x are stored at once.
    """

    @operation
    def _tile(
        _: Any, w: Any, at: Any, apart: Any, x: Any, by: Any, between: Any, length: Any, y: Any, to: Any,
        beside: Any, below: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(which: int) -> Any:
                return context.make_array(signature.args[which])(context, builder, args[which]).data

            _, at, apart, _, by, between, length, _, to, beside, below = args
            ws, xs = _places(builder, at, apart, C), _places(builder, by, between, R)
            totals = _together(builder, _sums(builder, layout, data(0), ws, data(3), xs, length))
            rows = _places(builder, to, below, R)
            _store(builder, totals, rows, None if neighbours else beside, C, data(7))
            return context.get_dummy_value()

        whole = types.intp
        return types.void(w, whole, whole, x, whole, whole, whole, y, whole, whole, whole), build

    end = layout.end

    @small_kernel
    def tile(
        w: Any, at: int, apart: int, x: Any, by: int, between: int, length: int, y: Any, to: int, beside: int,
        below: int,
    ) -> None:  # fmt: skip
        if CHECKED and (
            min(at, by, to) < 0
            or end(at + (C - 1) * apart, length) > w.size
            or by + (R - 1) * between + length > x.size
            or to + (R - 1) * below + (C - 1) * beside >= y.size
            or (neighbours and beside != 1)
        ):
            raise IndexError("a tile reaches outside an array")
        _tile(w, at, apart, x, by, between, length, y, to, beside, below)

    return tile
