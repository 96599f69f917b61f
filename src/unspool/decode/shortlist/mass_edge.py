"""The key at which a mass is reached, found without sorting a long row.

    edge = max { key(x) : Σ_{key(y) ≥ key(x)} w(y) ≥ mass }

The masses of 1,024 equal intervals of keys between the highest and a floor below the edge are summed; the
edge lies in the interval where their cumulative sum reaches the mass. Only the tokens of that interval, a few
hundred at most as a rule, are sorted. Masses are summed in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

INTERVALS = 1024


class Edge(NamedTuple):
    """Where a mass is reached."""

    key: float
    before: float
    """The weight of the tokens with a higher key."""
    here: float
    """The weight of the tokens that have this key."""
    ties: int
    """How many these are."""

    def needed(self, mass: float) -> int:
        """How many of the tokens exactly at the edge a mass takes, all weighing the same."""
        if self.here == 0:
            return self.ties
        return min(self.ties, max(1, int(np.ceil((mass - self.before) * self.ties / self.here))))


def mass_edge(
    key_W: NDArray[Any], weight_W: NDArray[Any], interval_W: NDArray[np.int32], mass: float
) -> Edge:
    """The edge of a row whose tokens lie in the intervals given, those below the floor in the last."""
    near_W = interval_W < INTERVALS
    # Where most tokens are below the floor, adding each of them to the same last sum would take longest.
    if 2 * np.count_nonzero(near_W) < len(key_W):
        column = np.flatnonzero(near_W)
        key_W, weight_W, interval_W = key_W[column], weight_W[column], interval_W[column]
    upto_I = np.bincount(interval_W, weight_W).cumsum()
    mass = min(mass, float(upto_I[-1]))
    here = int(np.searchsorted(upto_I, mass))
    before = float(upto_I[here - 1]) if here else 0.0
    column = np.flatnonzero(interval_W == here)
    column = column[np.argsort(-key_W[column])]
    falling_C = -key_W[column]
    upto_C = np.concatenate(([0.0], weight_W[column].cumsum(dtype=np.float64))) + before
    last = min(int(np.searchsorted(upto_C[1:], mass)), max(0, int(np.count_nonzero(weight_W[column])) - 1))
    first, end = (
        np.searchsorted(falling_C, falling_C[last], "left"),
        np.searchsorted(falling_C, falling_C[last], "right"),
    )
    return Edge(
        -float(falling_C[last]), float(upto_C[first]), float(upto_C[end] - upto_C[first]), int(end - first)
    )


def intervals(key_W: NDArray[Any], top: float, floor: float) -> NDArray[np.int32]:
    """In which of the intervals every key lies."""
    below_W = (top - key_W.astype(np.float64)) * (INTERVALS / max(top - floor, 1e-30))
    return np.minimum(below_W, INTERVALS).astype(np.int32)
