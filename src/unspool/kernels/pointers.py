"""Calls of compiled functions by their address: what many kernels use is then compiled once, by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from unspool.kernels.kernel import operation

WHOLE = ir.IntType(64)


@operation
def call(_: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """The function at an address, of six whole numbers, which returns nothing."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WHOLE] * 6)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return None

    return types.void(*[types.int64] * 7), build
