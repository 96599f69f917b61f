"""Memory of a thread's own stack, for what a kernel needs only while it runs.

    tile = carray(reserve(size), size, np.float32)

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
    """Where so many float32 begin. The size is to be no constant: LLVM would take them apart, one by one."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        room = builder.alloca(ir.FloatType(), args[0])
        room.align = 64
        return room

    return types.CPointer(types.float32)(types.int64), build
