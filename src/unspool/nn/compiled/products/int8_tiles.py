"""How a few rows of x meet 16 rows of whole numbers of eight bits, which lie side by side (`stored.formats`).

A register holds the sums of as many rows of w as it has lanes. Group by group of 64 inputs, each row's number
is multiplied with those of all of them. What a group's sums are made of is a `Way`: rows of x are made ready
for it first, a record of some words for every group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation, small_kernel
from unspool.kernels.lanes import CHECKED, FLOATS, WIDTH

SIDE, GROUP = 16, 64
"""Rows of w side by side, and inputs of a group."""
BYTES, BEGIN = 1088, 64
"""Of a group of all of these rows; its scales come first, and its numbers begin behind them."""
WORD = 4 * SIDE
"""Bytes of four inputs of all of these rows."""
REGISTERS = SIDE // WIDTH
"""That hold a sum of each."""


class Way(Protocol):
    """How a group is multiplied, in values of LLVM."""

    record: int
    """Words of a group of x that is ready."""
    at_once: int
    """Rows of x that meet a group before the next ones do, which find it in the nearest cache."""

    def add(
        self, builder: Any, w: Any, at: Any, ahead: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """totals += s · q · x for w's group at byte `at` and the group of each row of x in its record.

        totals has places of registers: those of the first row of x, then the next one's. So many bytes
        `ahead`, if that is not None, are what memory should give soon.
        """


def at_index(builder: Any, data: Any, index: Any, kind: Any) -> Any:
    """What lies at data[index], as this kind of value."""
    found = builder.load(builder.bitcast(builder.gep(data, [index]), kind.as_pointer()))
    found.align = 4
    return found


def tile_of(R: int, way: Way) -> Callable[..., Any]:
    """The kernel for R rows of x.

    It is given w, where in it the first group begins, and how far ahead of that memory is asked for more; x,
    where its first row begins and how far apart rows are; how many groups there are; y, where in it the first
    sum belongs, and how far apart rows are there.
    """
    record = way.record

    @operation
    def _tile(
        _: Any,
        w: Any,
        at: Any,
        ahead: Any,
        x: Any,
        by: Any,
        between: Any,
        groups: Any,
        y: Any,
        to: Any,
        below: Any,
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(which: int) -> Any:
                return context.make_array(signature.args[which])(context, builder, args[which]).data

            _, at, ahead, _, by, between, groups, _, to, below = args
            kind, nought = at.type, ir.Constant(FLOATS, [0.0] * WIDTH)
            rows = [builder.add(by, builder.mul(between, kind(r))) for r in range(R)]
            totals = [[cgutils.alloca_once_value(builder, nought) for _ in range(REGISTERS)] for _ in rows]
            with cgutils.for_range_slice(builder, kind(0), groups, kind(1), kind) as (g, _):
                records = [builder.add(row, builder.mul(g, kind(record))) for row in rows]
                begin = builder.add(at, builder.mul(g, kind(BYTES)))
                for r in range(0, R, way.at_once):
                    some, soon = slice(r, r + way.at_once), ahead if way.at_once < R and r == 0 else None
                    way.add(builder, data(0), begin, soon, data(3), records[some], totals[some])
            for r, registers in enumerate(totals):
                row = builder.add(to, builder.mul(below, kind(r)))
                for h, total in enumerate(registers):
                    where = builder.gep(data(7), [builder.add(row, kind(h * WIDTH))])
                    builder.store(builder.load(total), builder.bitcast(where, FLOATS.as_pointer()), align=4)
            return context.get_dummy_value()

        number = types.intp
        return types.void(w, number, number, x, number, number, number, y, number, number), build

    @small_kernel
    def tile(
        w: Any, at: int, ahead: int, x: Any, by: int, between: int, groups: int, y: Any, to: int, below: int
    ) -> None:
        if CHECKED and (
            min(at, by, to) < 0
            or at + groups * BYTES > w.size
            or by + (R - 1) * between + groups * record > x.size
            or to + (R - 1) * below + SIDE > y.size
        ):
            raise IndexError("a tile reaches outside an array")
        _tile(w, at, ahead, x, by, between, groups, y, to, below)

    return tile
