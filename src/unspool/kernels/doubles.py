"""Sums in double precision, one for each lane: what WIDTH numbers at a time are added to.

    s_l = Σ_k x[Wk + l],  l = 0 … W − 1,  k rising;   sum = Σ_l s_l, halves with halves as in `lanes`

A sum of 50,000 probabilities in single precision is off by more than some of them weigh.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from unspool.kernels.kernel import operation
from unspool.kernels.lanes import WIDTH, Register, folded

DOUBLE = ir.DoubleType()
DOUBLES = ir.VectorType(DOUBLE, WIDTH)
SUMS = Register("Doubles", DOUBLES)


@operation
def nothing(_: Any) -> Any:
    """Sums of nothing."""
    return SUMS(), lambda *_: ir.Constant(DOUBLES, [0.0] * WIDTH)


@operation
def added(_: Any, sums: Any, lanes: Any) -> Any:
    """The sums with as many numbers added, one to each."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fadd(args[0], builder.fpext(args[1], DOUBLES))

    return SUMS(sums, lanes), build


@operation
def summed(_: Any, sums: Any) -> Any:
    """The sum of all, in the one order that the file's head gives."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return folded(builder, args[0], builder.fadd)

    return types.float64(sums), build
