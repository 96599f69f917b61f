"""The key at which a mass is reached, found without sorting.

    edge = max { key(x) : Σ_{key(y) ≥ key(x)} w(y) ≥ mass }

The weights of 1,024 equal intervals between the highest key and a floor below the edge are summed; the edge
lies in the interval where their cumulative sum reaches the mass. Only the tokens of that interval are parted,
again and again, into those above one of them, those that tie with it and those below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.decode.compiled.row_scratch import BINS, Scratch, filled
from unspool.kernels.choices import lowest, reaching
from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, load, spread

NONE = np.float64(0)
ABOVE, LEAST = np.float32(2.0**-22), np.float32(2.0**-120)
"""What is added to a number in single precision to have one above it: a part of it, and what zero needs."""
SHORT = 256
"""Lists up to this length are parted at once."""


class Edge(NamedTuple):
    """Where a mass is reached."""

    key: Any
    before: float
    """The weight of the tokens with a higher key."""
    here: float
    """The weight of the tokens that have this key."""
    ties: int
    """How many these are."""


@kernel
def part(key: Any, weight: Any, size: int, before: float, mass: float) -> Edge:
    """The edge among the tokens given, whose order changes; `before` is the weight of all above them."""
    low, high = 0, size
    while True:
        a, b, c = key[low], key[(low + high) // 2], key[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        above_end, here_end, below = low, low, high
        above = here = 0.0
        while here_end < below:
            k, w = key[here_end], weight[here_end]
            if k > pivot:
                key[here_end], weight[here_end] = key[above_end], weight[above_end]
                key[above_end], weight[above_end] = k, w
                above += w
                above_end += 1
                here_end += 1
            elif k == pivot:
                here += w
                here_end += 1
            else:
                below -= 1
                key[here_end], weight[here_end] = key[below], weight[below]
                key[below], weight[below] = k, w
        if above_end > low and before + above >= mass:
            high = above_end
        elif before + above + here >= mass or below == high:
            return Edge(pivot, before + above, here, here_end - above_end)
        else:
            before += above + here
            low = below


@kernel
def mass_edge(key: Any, weight: Any, size: int, top: float, floor: Any, mass: float, room: Scratch) -> Edge:
    """The edge of a list: no key is above the top, and the mass is reached at the floor or above."""
    floor_lanes = spread(floor)
    if size <= SHORT:
        count = NOUGHT
        for i in range(size):
            if key[i] >= floor:
                room.near_key[count], room.near_weight[count] = key[i], weight[i]
                count += 1
        return part(room.near_key, room.near_weight, count, NONE, mass)
    per_unit = BINS / max(top - np.float64(floor), 1e-30)
    for b in range(BINS + 1):
        room.bins[b] = 0
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(key, i), floor_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            room.bins[min(BINS, int((top - key[at]) * per_unit))] += weight[at]
    before, here, last = 0.0, 0, 0
    while here < BINS and before + room.bins[here] < mass:
        if room.bins[here] > 0:
            last = here
        before += room.bins[here]
        here += 1
    if room.bins[here] == 0:  # rounding left the mass out of reach: what comes last
        here = last
        before -= room.bins[here]
    # The interval, and half of one on either side for what is rounded here; the test below is exact. Where
    # keys are so near each other that this half is lost in the rounding, the next number above is not.
    low = np.float32(max(np.float64(floor), top - (here + 1.5) / per_unit))
    high = np.float32(top - (here - 0.5) / per_unit)
    high += abs(high) * ABOVE + LEAST
    low_lanes, high_lanes = spread(low), spread(high)
    count = NOUGHT
    for i in range(0, filled(size), WIDTH):
        x = load(key, i)
        bits = reaching(x, low_lanes) & ~reaching(x, high_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            if min(BINS, int((top - key[at]) * per_unit)) == here:
                room.near_key[count], room.near_weight[count] = key[at], weight[at]
                count += 1
    return part(room.near_key, room.near_weight, count, before, mass)
