"""What compiled code is written in (numba, the extra `fast`): many numbers at once, threads that help.

Whoever imports a file of this package has asked `compiler_obstacle` first.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib.util import find_spec


@cache
def compiler_obstacle() -> str | None:
    """Why nothing can be compiled in this process; None if numba is there and may compile."""
    if find_spec("numba") is None:
        return "numba is not installed (pip install unspool[fast])"
    if os.environ.get("NUMBA_DISABLE_JIT", "0").strip() not in ("", "0"):
        warnings.warn(
            "NUMBA_DISABLE_JIT is set: torch runs what numba would have compiled, more slowly",
            RuntimeWarning,
            stacklevel=2,
        )
        return "NUMBA_DISABLE_JIT is set"
    return None
