"""Decorators that compile kernels with numba.

    @kernel, @inline_kernel   compiled into the kernels and entries that call them
    @entry                    called from Python without the GIL, compiled once and cached on disk
    @llvm_intrinsic           a few LLVM instructions

No option lets the compiler reorder sums: `simd` fixes the order of every sum.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

ENTRY_OPTIONS = {"nogil": True, "error_model": "numpy"}

numba_internals: ModuleType | None
try:
    import unspool.engine.numba_internals as known_internals

    numba_internals, KERNEL_OPTIONS = known_internals, {**ENTRY_OPTIONS, **known_internals.KERNEL_OPTIONS}
except (ImportError, AttributeError, TypeError):  # an unknown numba: slower to compile, no disk cache
    numba_internals, KERNEL_OPTIONS = None, ENTRY_OPTIONS

INT64_ZERO: Any = np.int64(0)
"""The start of a counter. numba would compile a function again for each literal constant argument."""


def kernel(function: F) -> F:
    """Compile a function into its callers.

    A kernel does not count references. Do not return an array from a kernel to an entry or to a plain numba
    function: these would release a reference that nothing has taken.
    """
    compiled: F = njit(**KERNEL_OPTIONS)(function)
    return compiled


def inline_kernel(function: F) -> F:
    """Like `kernel`, always inlined."""
    compiled: F = njit(**KERNEL_OPTIONS, forceinline=True)(function)
    return compiled


def entry(function: F) -> F:
    """Compile a function that Python calls, without the GIL; cached on disk."""
    compiled: F = njit(**ENTRY_OPTIONS, no_cfunc_wrapper=True)(function)
    if numba_internals:
        numba_internals.cache_on_disk(compiled)
    return compiled


def c_callback(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call by its `address`; cached on disk."""
    options = {"nopython": True, "error_model": "numpy"}
    cached = numba_internals.cached_callback(signature, function, options) if numba_internals else None
    return cached or cfunc(signature, **options)(function)


def llvm_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is LLVM instructions (numba's `intrinsic`)."""
    compiled: Callable[..., Any] = intrinsic(function)
    return compiled


@llvm_intrinsic
def call_address(_: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Call the void function of six int64 at an address, so that many kernels share one compiled function."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        signature = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
        builder.call(builder.inttoptr(args[0], signature.as_pointer()), args[1:])
        return None

    return types.void(*[types.int64] * 7), build
