"""Where a thread writes while it works on a row: the tokens still in question, and what is known of them.

A list of W tokens lies at the beginning of each array, in the order of the vocabulary, and is filled up to a
multiple of STRIDE with tokens of score −∞ and weight 0, so that no loop has a remainder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.kernel import kernel, small_kernel
from unspool.kernels.lanes import WIDTH
from unspool.kernels.spare_memory import Numbers, lent

STRIDE = 2 * WIDTH
BLOCK = 256
"""Tokens whose weights are added up together."""
BINS = 1024
LINE = 16
"""Numbers in a line of the cache: two threads write to different ones."""


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


def rooms(threads: int, vocabulary: int) -> Numbers:
    """Memory for as many scratches, a row each."""
    size = -(-vocabulary // STRIDE) * STRIDE
    doubles = size // BLOCK + 1 + BINS + 1
    return lent(threads, -(-(6 * size + 2 * doubles) // LINE) * LINE)


@kernel
def scratch(memory: Any, vocabulary: int) -> Scratch:
    """The scratch that lies in a row of `rooms`."""
    size = filled(vocabulary)
    doubles = memory[6 * size : memory.size // 2 * 2].view(np.float64)
    blocks = size // BLOCK + 1
    return Scratch(
        memory[:size],
        memory[size : 2 * size],
        memory[2 * size : 3 * size].view(np.int32),
        memory[3 * size : 4 * size],
        memory[4 * size : 5 * size],
        memory[5 * size : 6 * size],
        doubles[:blocks],
        doubles[blocks : blocks + BINS + 1],
    )


@kernel
def fill(room: Scratch, size: int) -> None:
    """Fill a list up."""
    for i in range(size, filled(size)):
        room.score[i] = -np.inf
        room.weight[i] = 0
        room.token[i] = 0
