"""The rules that keep what reaches a score: the score, and by how much it may be off.

    top-k     s₍ₖ₎                          min-p     max s + log m
    epsilon   b + log Z + log ε             eta       min(b + log Z + log η, b + ½ log η − m)
    top-a     b − log Z + log a             top-nσ    max s − n·σ

with b the base, at which tokens weigh 1, Z and m as in `weights`, and H = log Z + m. The rules themselves,
their papers and their ties are told where they are defined, in `transforms`; the best token always stays.

Top-k: of the maxima of k or more disjoint blocks, the k-th largest is a floor under the k-th largest of the
row. What reaches that floor is little more than k tokens; only these are ranked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.decode.compiled.mass_edge import mass_edge, part
from unspool.decode.compiled.row_scratch import Scratch, filled
from unspool.decode.compiled.row_weights import ALIVE, MEAN, ROUNDING
from unspool.kernels.choices import lowest, reaching
from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, higher, highest, load, spread

BLOCK = 64


@kernel
def epsilon(value: float, base: float, whole: float) -> Any:
    """Of probability ε or more."""
    if value == 0:
        return -np.inf, 0.0
    return base + math.log(whole) + math.log(value), ROUNDING


@kernel
def eta(value: float, base: float, whole: float, below: float) -> Any:
    """Of probability η or more, or √η · e^(−H) where that is less."""
    if value == 0:
        return -np.inf, 0.0
    constant = base + math.log(whole) + math.log(value)
    falling = base + math.log(value) / 2 - below
    return min(constant, falling), ROUNDING + MEAN * below


@kernel
def top_a(value: float, base: float, whole: float, peak: float) -> Any:
    """At least a · max p times as probable as the best."""
    if value == 0:
        return -np.inf, 0.0
    return peak + (peak - base) - math.log(whole) + math.log(value), ROUNDING


@kernel
def min_p(value: float, peak: float) -> Any:
    """At least m times as probable as the best."""
    return (peak + math.log(value) if value > 0 else -np.inf), 0.0


@kernel
def top_n_sigma(value: float, peak: float, sigma: float, off: float) -> Any:
    """Within n standard deviations of the best."""
    return peak - value * sigma, value * off


@kernel
def kth_largest(score: Any, size: int, k: int, peak: Any, room: Scratch) -> Any:
    """The k-th largest score, or the lowest of a token that is left."""
    if k >= size:
        return ALIVE
    if 2 * k > size // BLOCK:
        return _kth_of_many(score, size, k, peak, room)
    blocks = size // BLOCK
    for b in range(blocks):
        best = load(score, b * BLOCK)
        for i in range(b * BLOCK + WIDTH, (b + 1) * BLOCK, WIDTH):
            best = higher(load(score, i), best)
        room.near_key[b], room.near_weight[b] = highest(best), 1
    floor = spread(part(room.near_key, room.near_weight, blocks, 0.0, np.float64(k)).key)
    count = NOUGHT
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(score, i), floor)
        while bits:
            room.near_key[count], room.near_weight[count] = score[i + lowest(bits)], 1
            bits &= bits - 1
            count += 1
    return max(ALIVE, part(room.near_key, room.near_weight, count, 0.0, np.float64(k)).key)


@kernel
def _kth_of_many(score: Any, size: int, k: int, peak: Any, room: Scratch) -> Any:
    """The same by intervals, every token weighing 1."""
    least = peak
    for i in range(size):
        room.key[i] = 1
        if ALIVE <= score[i] < least:
            least = score[i]
    return mass_edge(score, room.key, size, np.float64(peak), least, np.float64(k), room).key
