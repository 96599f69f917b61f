"""Scores bent to stay below a cap, as `heads.capped` and Gemma 2's attention have it.

z ← c · tanh(s · z / c)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.exponential import tanh
from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, first, load, spread, store, times


@kernel
def bend(z: Any, at: int, size: int, scale: Any, cap: Any) -> None:
    """z[at : at + size], in place."""
    by, high = spread(np.float32(scale / cap)), spread(np.float32(cap))
    i, end = at, at + size
    while i < end:
        whole = i + WIDTH <= end
        bent = times(tanh(times(load(z, i) if whole else spread(z[i]), by)), high)
        if whole:
            store(z, i, bent)
            i += WIDTH
        else:
            z[i] = first(bent)
            i += 1
