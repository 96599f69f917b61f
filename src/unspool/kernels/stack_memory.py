"""Memory of a thread's own stack, for what a kernel needs only while it runs.

    tile = floats(reserve(size), size)

It is there until the kernel that reserved it returns: `reserve` is an operation, not a function that would
give the memory back before its caller has used it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from unspool.kernels.kernel import operation

MOST = 65536
"""Numbers that a kernel may ask for: a quarter of a megabyte."""


@operation
def reserve(_: Any, size: Any) -> Any:
    """The address of so many float32. A constant size is taken apart by LLVM, number by number."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        room = builder.alloca(ir.FloatType(), args[0])
        room.align = 64
        return builder.ptrtoint(room, ir.IntType(64))

    return types.int64(types.int64), build
