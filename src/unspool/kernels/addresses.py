"""Numbers that lie at an address: memory of torch's, or of a mapped file, as kernels read it.

Whoever calls has made sure that the memory is there and that so many numbers lie in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types

from unspool.kernels.kernel import operation, small_kernel


@operation
def _float_pointer(_: Any, address: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), build


@operation
def _byte_pointer(_: Any, address: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.CPointer(types.uint8)(types.int64), build


@small_kernel
def floats(address: int, size: int) -> Any:
    """The float32 numbers that lie at an address."""
    return carray(_float_pointer(np.int64(address)), size, np.float32)


@small_kernel
def octets(address: int, size: int) -> Any:
    """The bytes that lie at an address."""
    return carray(_byte_pointer(np.int64(address)), size, np.uint8)
