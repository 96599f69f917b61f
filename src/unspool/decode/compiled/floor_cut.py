"""What a cut leaves: the tokens whose key reaches a floor.

Where many are left, the others are marked (score −∞, weight 0), WIDTH at a time; where few are, these are
moved together. Either way they stay in the order of the vocabulary, so that the same roll of the dice finds
the same token.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.decode.compiled.row_scratch import Scratch, fill, filled
from unspool.kernels.choices import either, lowest, reaching
from unspool.kernels.doubles import added, nothing, summed
from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, highest, load, lower, spread, store, times

SHORTER = 16
"""Tokens are moved together when they become this many times fewer."""


@kernel
def count(key: Any, floor: Any, size: int) -> Any:
    """How many tokens reach the floor."""
    least, one, zero = spread(floor), spread(np.float32(1)), spread(np.float32(0))
    counts = nothing()
    for i in range(0, filled(size), WIDTH):
        counts = added(counts, either(load(key, i), least, one, zero))
    return np.int64(summed(counts))


@kernel
def mark(key: Any, floor: Any, score: Any, size: int, room: Scratch) -> Any:
    """Cut every token below the floor where it stands; the lowest score of the others."""
    least, gone, zero = spread(floor), spread(np.float32(-np.inf)), spread(np.float32(0))
    top = spread(np.float32(np.inf))
    low = top
    for i in range(0, filled(size), WIDTH):
        k, s = load(key, i), load(score, i)
        low = lower(either(k, least, s, top), low)
        store(room.weight, i, either(k, least, load(room.weight, i), zero))
        store(room.score, i, either(k, least, s, gone))
    return -highest(times(low, spread(np.float32(-1))))


@kernel
def move(key: Any, floor: Any, ties: int, score: Any, size: int, whole: bool, room: Scratch) -> Any:
    """Move what reaches the floor together; of the tokens exactly there, the first `ties` stay.

    How many that are, and the lowest of their scores. Where the row is still whole, a place in it is the
    token's id.
    """
    floor_lanes, least, kept = spread(floor), np.float32(np.inf), NOUGHT
    for i in range(0, filled(size), WIDTH):
        bits = reaching(load(key, i), floor_lanes)
        while bits:
            at = i + lowest(bits)
            bits &= bits - 1
            if key[at] == floor:
                if ties == 0:
                    continue
                ties -= 1
            s = score[at]
            room.score[kept], room.weight[kept] = s, room.weight[at]
            room.token[kept] = at if whole else room.token[at]
            least = min(least, s)
            kept += 1
    fill(room, kept)
    return kept, least


@kernel
def keep(key: Any, floor: Any, surplus: int, score: Any, size: int, whole: bool, room: Scratch) -> Any:
    """What reaches the floor, but for the last `surplus` of the tokens exactly there.

    The size of the list, whether a place in it still is the token's id, and the lowest score that stays.
    """
    kept = count(key, floor, size)
    if surplus == 0 and kept * SHORTER > size:
        return size, whole, mark(key, floor, score, size, room)
    ties = kept - surplus
    if surplus:
        ties = -surplus
        for i in range(size):
            ties += key[i] == floor
    moved, least = move(key, floor, ties, score, size, whole, room)
    return moved, False, least
