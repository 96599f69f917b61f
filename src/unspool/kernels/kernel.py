"""How the kernels of this room are compiled: numba's decorators, with the types that a reader and mypy see.

No flag lets the compiler reorder sums: the order of every one of them is written down (`lanes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numba.core.ccallback import CFunc
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from unspool.kernels.entry_cache import EntryCache
from unspool.kernels.inner_compiler import InnerCompiler

F = TypeVar("F", bound=Callable[..., Any])

# What only other kernels call needs no way in for Python or C.
INNER = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": InnerCompiler,
}

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
    compiled: Any = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True)(function)
    compiled._cache = EntryCache(function)
    return compiled  # type: ignore[no-any-return]


def callback(kind: Signature, function: Callable[..., Any]) -> Any:
    """Called by its `address`, from other kernels; compiled once and kept on disk."""
    options = {"nopython": True, "error_model": "numpy"}
    compiled: Any = CFunc(function, (kind.args, kind.return_type), locals={}, options=options)
    compiled._cache = EntryCache(function)
    compiled.compile()
    return compiled


def operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """One instruction of LLVM, or a few."""
    compiled: Callable[..., Any] = intrinsic(function)
    return compiled
