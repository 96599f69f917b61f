"""How the kernels of this room are compiled: numba's decorators, with the types that a reader and mypy see.

No flag lets the compiler reorder sums: the order of every one of them is written down (`lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# What only other kernels call needs no way in for Python or C: half of the time to compile it.
INNER = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

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
    """Called from Python, without its lock, compiled once and kept on disk."""
    compiled: F = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, cache=True)(function)
    return compiled


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """One instruction of LLVM, or a few."""
    compiled: Callable[..., Any] = intrinsic(function)
    return compiled
