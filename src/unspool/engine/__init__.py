"""Compiled decoding with numba: SIMD kernels, threads, the KV cache, the Transformer step and sampling.

Call `compiler_obstacle` before you import a module with kernels.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec

TEMPERATURE, TOP_K, MIN_P, TOP_N_SIGMA, EPSILON, ETA, TOP_A, TOP_P, TYPICAL = range(9)
"""Codes of the transforms that `sampling` implements."""


@cache
def compiler_obstacle() -> str | None:
    """The reason why nothing can be compiled in this process; None if numba is installed and enabled."""
    if find_spec("numba") is None:
        warnings.warn(
            "numba is not installed: torch decodes, several times more slowly (pip install numba)",
            RuntimeWarning,
            stacklevel=2,
        )
        return "numba is not installed (pip install numba)"
    if os.environ.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0"):
        warnings.warn(
            "NUMBA_DISABLE_JIT is set: torch runs what numba would have compiled, more slowly",
            RuntimeWarning,
            stacklevel=2,
        )
        return "NUMBA_DISABLE_JIT is set"
    return None
