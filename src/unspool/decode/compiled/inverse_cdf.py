"""Draw from a list of weights by inverting their cumulative sum in two levels.

    y = min { i : Σ_{j≤i} w_j > u · Z },   u uniform on [0, 1)

The masses of blocks are known; only the block that u falls into is walked.
"""

from __future__ import annotations

from typing import Any

from unspool.decode.compiled.nuclei import margin
from unspool.decode.compiled.row_scratch import BLOCK, Scratch, filled
from unspool.kernels.kernel import kernel


@kernel
def find_block(size: int, target: float, room: Scratch) -> Any:
    """The block that the target falls into, and the mass before it."""
    before, block, end = 0.0, 0, filled(size)
    while (block + 1) * BLOCK < end and before + room.mass[block] <= target:
        before += room.mass[block]
        block += 1
    return block, before


@kernel
def find_token(size: int, whole: float, u: float, block: int, before: float, room: Scratch) -> Any:
    """The place in the list, and whether rounding cannot have changed it."""
    target = u * whole
    place, last = block * BLOCK, min((block + 1) * BLOCK, size)
    while place < last - 1 and before + room.weight[place] <= target:
        before += room.weight[place]
        place += 1
    off = margin(u) * whole
    after = before + room.weight[place]
    return place, target - before > off and after - target > off
