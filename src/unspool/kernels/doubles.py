"""Sums in double precision, one for each lane: what WIDTH numbers at a time are added to.

    s_l = Σ_k x[Wk + l],  l = 0 … W − 1,  k rising;   sum = Σ_l s_l, halves with halves as in `lanes`

A sum of 50,000 probabilities in single precision is off by more than some of them weigh.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import models, register_model

from unspool.kernels.kernel import operation
from unspool.kernels.lanes import HALVES, INT, INTS, WIDTH

DOUBLE = ir.DoubleType()
DOUBLES = ir.VectorType(DOUBLE, WIDTH)


class Doubles(types.Type):  # type: ignore[misc]
    """numba's type of WIDTH float64."""

    def __init__(self) -> None:
        super().__init__("Doubles")


SUMS = Doubles()


@register_model(Doubles)
class DoublesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Two vector registers."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, DOUBLES)


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
        found = args[0]
        for half in HALVES:
            order = ir.Constant(INTS, [(lane + half) % WIDTH for lane in range(WIDTH)])
            found = builder.fadd(
                found, builder.shuffle_vector(found, ir.Constant(DOUBLES, ir.Undefined), order)
            )
        return builder.extract_element(found, ir.Constant(INT, 0))

    return types.float64(sums), build
