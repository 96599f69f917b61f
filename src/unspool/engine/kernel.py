"""How the kernels of this room are compiled: numba's decorators, with the types that a reader and mypy see.

No flag lets the compiler reorder sums: the order of every one of them is written down (`lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

OTHER_NUMBA = (ImportError, AttributeError, TypeError)
"""What it comes to when numba's inside is not as it was; there is a slower way without it."""

numba_internals: ModuleType | None
try:
    from unspool.engine import numba_internals
except OTHER_NUMBA:
    numba_internals = None

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = {"nogil": True, "error_model": "numpy"}
try:
    from unspool.engine.numba_internals import InnerCompiler

    # What only other kernels call needs no way in for Python or C. Nor does it count references to arrays:
    # who calls an entry holds all of them until it returns, and threads that count wait for each other.
    INNER = {
        **PLAIN,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "_nrt": False,
        "pipeline_class": InnerCompiler,
    }
except OTHER_NUMBA:
    INNER = PLAIN

NOUGHT: Any = np.int64(0)
"""A 0 that is the beginning of a count: numba compiles a function anew for each constant that it is given."""


def kernel(function: F) -> F:
    """Compiled into whatever calls it."""
    compiled: F = njit(**INNER)(function)
    return compiled


def small_kernel(function: F) -> F:
    """The same, for a few lines that are always worth copying to where they are called."""
    compiled: F = njit(**INNER, forceinline=True)(function)
    return compiled


def entry(function: F) -> F:
    """Called from Python, without its lock, compiled once and kept on disk.

    It counts references, and kernels do not: an array that a kernel returns must not come to an entry, which
    would let go of what nobody has taken. Nor must it come to a function of numba's own.
    """
    compiled: F = njit(**PLAIN, no_cfunc_wrapper=True)(function)
    if numba_internals:
        numba_internals.keep(compiled)
    return compiled


def callback(kind: Any, function: Callable[..., Any]) -> Any:
    """Called by its `address`, from other kernels; compiled once and kept on disk."""
    options = {"nopython": True, "error_model": "numpy"}
    early = numba_internals.early_callback(kind, function, options) if numba_internals else None
    return early or cfunc(kind, **options)(function)


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """One instruction of LLVM, or a few."""
    compiled: Callable[..., Any] = intrinsic(function)
    return compiled


# Calls of compiled functions by their address: what many kernels use is then compiled once, by itself.


WHOLE = ir.IntType(64)


@operation
def call(_: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """The function at an address, of six whole numbers, which returns nothing."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WHOLE] * 6)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return None

    return types.void(*[types.int64] * 7), build
