"""Memory of states that are gone, kept for those to come.

The system hands out large pages slowly, or, when its memory is in pieces, small ones in their place, with
which a step of many rows takes a quarter longer. So what a state had is kept, up to a limit.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from unspool.kernels.aligned import aligned

MOST = 2**26
"""Numbers that are kept, at most: a quarter of a gigabyte."""

Numbers = NDArray[np.float32]

_kept: list[Numbers] = []
_looking = threading.RLock()  # a state may be collected while one is being made


def memory(size: int) -> Numbers:
    """At least `size` numbers of any values: kept ones, if not twice as many, or new ones."""
    with _looking:
        enough = [place for place, numbers in enumerate(_kept) if size <= numbers.size <= 2 * size]
        if enough:
            return _kept.pop(min(enough, key=lambda place: _kept[place].size))
    try:
        return aligned(size)
    except MemoryError:
        if not _kept:
            raise
        _kept.clear()
        return aligned(size)


def keep(numbers: Numbers) -> None:
    """Nobody uses them any more. Those that were kept longest go where there are too many."""
    if not 0 < numbers.size <= MOST:
        return
    with _looking:
        _kept.append(numbers)
        while sum(each.size for each in _kept) > MOST:
            del _kept[0]
