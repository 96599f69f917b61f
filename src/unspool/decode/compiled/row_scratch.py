"""Where a thread writes while it works on a row: the tokens still in question, and what is known of them.

A list of W tokens lies at the beginning of each array, in the order of the vocabulary, and is filled up to a
multiple of STRIDE with tokens of score −∞ and weight 0, so that no loop has a remainder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.kernel import kernel, small_kernel
from unspool.kernels.lanes import WIDTH

STRIDE = 2 * WIDTH
BLOCK = 256
"""Tokens whose weights are added up together."""
BINS = 1024


class Scratch(NamedTuple):
    """Arrays as long as the vocabulary, but for the last two."""

    score: Any
    weight: Any
    """Probabilities up to a factor of the row."""
    token: Any
    key: Any
    """What a rule ranks by, where that is not the score."""
    near_key: Any
    near_weight: Any
    """The tokens among which an edge is looked for; these two are reordered."""
    mass: Any
    """The weight of every block of the list."""
    bins: Any


@small_kernel
def filled(size: int) -> int:
    """The size with what fills it up."""
    return (size + STRIDE - 1) // STRIDE * STRIDE


@kernel
def scratch(vocabulary: int) -> Scratch:
    """Room for one row."""
    size = filled(vocabulary)
    return Scratch(
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.int32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float32),
        np.empty(size // BLOCK + 1, np.float64),
        np.empty(BINS + 1, np.float64),
    )


@kernel
def fill(room: Scratch, size: int) -> None:
    """Fill a list up."""
    for i in range(size, filled(size)):
        room.score[i] = -np.inf
        room.weight[i] = 0
        room.token[i] = 0
