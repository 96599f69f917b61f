"""Logits of one row to log-probabilities.

log p_i = (z_i − m) − log Σ_j e^(z_j − m),   m = max_j z_j
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.kernels.exponential import exp
from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, first, higher, highest, load, plus, spread, store, total


@kernel
def log_softmax(z: Any, at: int, size: int) -> Any:
    """z[at : at + size] in place; returns what was taken away from every logit."""
    even = size // WIDTH * WIDTH
    peak = spread(np.float32(-np.inf))
    for i in range(0, even, WIDTH):
        peak = higher(load(z, at + i), peak)
    top = highest(peak)
    for i in range(even, size):
        top = max(top, z[at + i])
    summed, shift = spread(np.float32(0)), spread(-top)
    for i in range(0, even, WIDTH):
        summed = plus(summed, exp(plus(load(z, at + i), shift)))
    mass = total(summed)
    for i in range(even, size):
        mass += first(exp(spread(z[at + i] - top)))
    log_mass = np.float32(math.log(mass))
    log_lanes = spread(-log_mass)
    for i in range(0, even, WIDTH):
        store(z, at + i, plus(plus(load(z, at + i), shift), log_lanes))
    for i in range(even, size):
        z[at + i] = (z[at + i] - top) - log_mass
    return top + log_mass
