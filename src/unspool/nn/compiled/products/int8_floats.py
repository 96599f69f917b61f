"""Products of float32: whole numbers of eight bits are converted on the way.

    y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

for processors that do not multiply bytes; `int8_digits` is the way of the others. Within a group the sum is
made number by number, whatever the number of rows of x.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from unspool.kernels.byte_products import MIDDLE
from unspool.kernels.kernel import small_kernel
from unspool.kernels.lanes import FLOAT, FLOATS, INTS, WIDTH, fused_lanes, load, spread_lanes, store, whole
from unspool.nn.compiled.products.int8_tiles import BEGIN, GROUP, REGISTERS, WORD, at_index


@small_kernel
def _copied(x: Any, at: int, room: Any, to: int) -> None:
    for i in range(0, GROUP, WIDTH):
        store(room, to + i, load(x, at + i))


class ByFloats:
    """A way of `int8_tiles`, for registers of any width."""

    record = GROUP
    ready = staticmethod(_copied)
    """A kernel: the record of x[at …], which has all numbers of a group."""

    def add(
        self, builder: Any, w: Any, at: Any, _: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """A register's worth of rows of w after another; memory keeps up without being asked."""
        for h in range(REGISTERS):
            self._add(builder, w, at, 4 * h * WIDTH, x, records, [it[h] for it in totals])

    def _add(
        self, builder: Any, w: Any, at: Any, shift: int, x: Any, records: list[Any], totals: list[Any]
    ) -> None:
        """Those whose scales, and bytes among four inputs, begin `shift` bytes behind the first."""
        kind, nought = at.type, ir.Constant(FLOATS, [0.0] * WIDTH)
        sums = [cgutils.alloca_once(builder, FLOATS) for _ in records]
        for place in sums:
            builder.store(nought, place)
        begin = builder.add(at, kind(BEGIN + shift))
        with cgutils.for_range_slice(builder, kind(0), kind(GROUP // 4), kind(1), kind) as (k, _):
            codes = at_index(builder, w, builder.add(begin, builder.mul(k, kind(WORD))), INTS)
            for j in range(4):
                byte = builder.and_(builder.lshr(codes, whole(8 * j)), whole(255))
                numbers = builder.sitofp(builder.sub(byte, whole(MIDDLE)), FLOATS)
                i = builder.add(builder.mul(k, kind(4)), kind(j))
                for record, place in zip(records, sums, strict=True):
                    own = spread_lanes(builder, at_index(builder, x, builder.add(record, i), FLOAT))
                    builder.store(fused_lanes(builder, numbers, own, builder.load(place)), place)
        scales = at_index(builder, w, builder.add(at, kind(shift)), FLOATS)
        for place, total in zip(sums, totals, strict=True):
            found = fused_lanes(builder, builder.load(place), scales, builder.load(total))
            builder.store(found, total)
