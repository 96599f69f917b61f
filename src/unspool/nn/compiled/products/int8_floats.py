"""Products of float32: whole numbers of eight bits are converted on the way.

    y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

for processors that do not multiply bytes; `int8_digits` is the way of the others. Within a group, numbers of
even i make one sum and those of odd i another, whatever the number of rows of x: a processor begins the next
product of one sum while it is still at another's.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from unspool.kernels.byte_products import MIDDLE
from unspool.kernels.kernel import small_kernel
from unspool.kernels.lanes import FLOAT, FLOATS, INTS, WIDTH, fused_lanes, load, spread_lanes, store, whole
from unspool.nn.compiled.products.int8_tiles import BEGIN, GROUP, REGISTERS, SIDE, WORD, at_index

FEW, CHAINS = 2, 2
"""Rows of x that meet all rows of w at once, at most, and sums of a group that are made side by side."""


@small_kernel
def _copied(x: Any, at: int, room: Any, to: int) -> None:
    for i in range(0, GROUP, WIDTH):
        store(room, to + i, load(x, at + i))


class ByFloats:
    """A way of `int8_tiles`, for registers of any width."""

    record, at_once = GROUP, 4 if WIDTH == SIDE else FEW
    ready = staticmethod(_copied)
    """A kernel: the record of x[at …], which has all numbers of a group."""

    def add(
        self, builder: Any, w: Any, at: Any, _: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """All rows of w at once for a few of x, else a register's worth of them after another."""
        count = REGISTERS if len(records) <= FEW else 1
        for h in range(0, REGISTERS, count):
            self._add(builder, w, at, range(h, h + count), x, records, totals)

    def _add(
        self, builder: Any, w: Any, at: Any, some: range, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """The rows of w whose sums are in these registers. Memory keeps up without being asked."""
        kind = at.type
        pairs = [(record, total, h) for record, total in zip(records, totals, strict=True) for h in some]
        sums = {
            (r, j): cgutils.alloca_once(builder, FLOATS) for r in range(len(pairs)) for j in range(CHAINS)
        }
        for place in sums.values():
            builder.store(ir.Constant(FLOATS, [0.0] * WIDTH), place)
        with cgutils.for_range_slice(builder, kind(0), kind(GROUP // 4), kind(1), kind) as (k, _):
            begin = builder.add(builder.add(at, kind(BEGIN)), builder.mul(k, kind(WORD)))
            codes = {h: at_index(builder, w, builder.add(begin, kind(4 * h * WIDTH)), INTS) for h in some}
            for j in range(4):
                numbers = {h: _numbers(builder, codes[h], j) for h in some}
                i = builder.add(builder.mul(k, kind(4)), kind(j))
                for r, (record, _, h) in enumerate(pairs):
                    own = spread_lanes(builder, at_index(builder, x, builder.add(record, i), FLOAT))
                    place = sums[r, j % CHAINS]
                    builder.store(fused_lanes(builder, numbers[h], own, builder.load(place)), place)
        for r, (_, total, h) in enumerate(pairs):
            scales = at_index(builder, w, builder.add(at, kind(4 * h * WIDTH)), FLOATS)
            found = builder.fadd(*(builder.load(sums[r, j]) for j in range(CHAINS)))
            builder.store(fused_lanes(builder, found, scales, builder.load(total[h])), total[h])


def _numbers(builder: Any, codes: Any, j: int) -> Any:
    """The j-th byte of every lane, as a number."""
    byte = builder.and_(builder.lshr(codes, whole(8 * j)), whole(255))
    return builder.sitofp(builder.sub(byte, whole(MIDDLE)), FLOATS)
