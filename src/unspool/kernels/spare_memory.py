"""Memory that is not needed any more, kept for what comes next.

The system clears every page that it hands out when it is first touched, and takes back what was freed in
large pieces: with [64, 49152] log-probabilities either takes longer than to compute them. It also hands out
large pages slowly, or, when its memory is in pieces, small ones in their place, with which a step of many
rows takes a quarter longer. So what keys and values, results and scratch lay in is kept, up to a limit.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from numpy.typing import NDArray

from unspool.kernels.aligned import aligned

MOST = 2**26
"""Numbers that are kept, at most: a quarter of a gigabyte."""
LENT = range(2**14, 2**24 + 1)
"""Sizes that are lent. Smaller ones the system is not asked for, larger ones are no result of a step."""

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


class Loan:
    """What lent numbers belong to: it lives as long as an array, a view or a tensor of them does.

    NumPy gives every view of a view the owner at the bottom for its base, and torch holds the array that a
    tensor was made of. So no count of one array's users would do, and this one object does.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self.__array_interface__ = numbers.__array_interface__

    def __del__(self) -> None:
        """The last of them is gone."""
        keep(self._numbers)


def lent(*shape: int) -> Numbers:
    """An array of any values, whose memory is kept as soon as nothing shows it any more."""
    size = int(np.prod(shape, dtype=np.int64))
    if size not in LENT:
        return aligned(*shape)
    whole: Numbers = np.asarray(Loan(memory(size)))
    return whole[:size].reshape(shape)


def _after_fork() -> None:
    global _looking
    _looking = threading.RLock()  # whoever was looking is not there


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
