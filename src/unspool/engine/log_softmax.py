"""log_softmax of a row of logits.

log p_i = (z_i − m) − log Σ_j e^(z_j − m),   m = max_j z_j

Two passes: the first computes maximum and sum together, block by block, and rescales the sum when a block has
a higher maximum. Sums are in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.engine.kernel import kernel
from unspool.engine.simd import (
    WIDTH,
    add_to_sums,
    first_element,
    load,
    splat,
    store,
    total_of_sums,
    vadd,
    vexp,
    vmax,
    vmax_element,
    zero_sums,
)

BLOCK = 256


@kernel
def log_softmax(z: Any, at: int, size: int) -> Any:
    """log_softmax of z[at : at + size] in place; returns the log-normaliser m + log Σ."""
    even = size // WIDTH * WIDTH
    top, mass = np.float32(-np.inf), 0.0
    for i in range(even, size):
        top = max(top, z[at + i])
    for i in range(even, size):
        mass += (
            first_element(vexp(splat(z[at + i] - top))) if z[at + i] != -np.inf else 0.0
        )  # −∞ − (−∞) is NaN
    for start in range(0, even, BLOCK):
        end = min(start + BLOCK, even)
        peak = splat(np.float32(-np.inf))
        for i in range(start, end, WIDTH):
            peak = vmax(load(z, at + i), peak)
        best = vmax_element(peak)
        if best > top:
            mass *= math.exp(top - best)
            top = best
        shift, sums = splat(-top if top > -np.inf else np.float32(0)), zero_sums()
        for i in range(start, end, WIDTH):
            sums = add_to_sums(sums, vexp(vadd(load(z, at + i), shift)))
        mass += total_of_sums(sums)
    log_mass = np.float32(math.log(mass))
    shift, log_vector = splat(-top), splat(-log_mass)
    for i in range(0, even, WIDTH):
        store(z, at + i, vadd(vadd(load(z, at + i), shift), log_vector))
    for i in range(even, size):
        z[at + i] = (z[at + i] - top) - log_mass
    return top + log_mass
