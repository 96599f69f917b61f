"""Which of WIDTH numbers reach a floor: as bits to walk through, or as a choice between two numbers.

    bits = reaching(x, floor);   while bits: lane = lowest(bits), bits = bits & (bits − 1)

Where few of many numbers are wanted, most of the walks are empty, and WIDTH numbers cost one comparison.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation
from unspool.kernels.lanes import LANES, WIDTH, called

LONG = ir.IntType(64)


@operation
def reaching(_: Any, x: Any, floor: Any) -> Any:
    """Bit l is set where x_l ≥ floor_l; a NaN reaches nothing."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        chosen = builder.fcmp_ordered(">=", args[0], args[1])
        return builder.zext(builder.bitcast(chosen, ir.IntType(WIDTH)), LONG)

    return types.int64(x, floor), build


@operation
def lowest(_: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; there must be one."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kind = ir.FunctionType(LONG, [LONG, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [args[0], ir.IntType(1)(1)])

    return types.int64(types.int64), build


@operation
def either(_: Any, x: Any, floor: Any, yes: Any, no: Any) -> Any:
    """yes where x ≥ floor, and no elsewhere (where one of them is NaN, too)."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", args[0], args[1]), args[2], args[3])

    return LANES(x, floor, yes, no), build


@operation
def distance(_: Any, a: Any, b: Any) -> Any:
    """|a − b|."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return called(builder, "fabs", builder.fsub(*args))

    return LANES(a, b), build
