"""Memory that is not needed any more, kept for what comes next.

The system clears every page that it hands out when it is first touched, and takes back what was freed in
large pieces: with [64, 49152] log-probabilities either takes longer than to compute them. It also hands out
large pages slowly, or, when its memory is in pieces, small ones in their place, with which a step of many
rows takes a quarter longer. So what keys and values, results and scratch lay in is kept, up to a limit.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

from unspool.engine.kernel import operation

# Arrays that begin where a line of the cache begins: lanes that lie across two lines cost twice.


LINE = 64
"""Bytes."""


def aligned(*shape: int) -> NDArray[np.float32]:
    """An empty array of float32."""
    size = 4 * math.prod(shape)
    octets = np.empty(size + LINE, np.uint8)
    begin = -octets.ctypes.data % LINE
    return octets[begin : begin + size].view(np.float32).reshape(shape)  # numpy puts an empty one anywhere


MAX_KEPT_NUMBERS = 2**26
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
    if not 0 < numbers.size <= MAX_KEPT_NUMBERS:
        return
    with _looking:
        _kept.append(numbers)
        while sum(each.size for each in _kept) > MAX_KEPT_NUMBERS:
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


# Numbers that lie at an address: memory of torch's, or of a mapped file, as kernels read it.
#
# Whoever calls has made sure that the memory is there and that so many numbers lie in it.


def _lying(kind: types.Array, whole: Any) -> Any:
    """The array of a kind whose numbers lie at an address, given as two whole numbers."""

    def build(context: Any, builder: Any, _: Any, args: Any) -> Any:
        address, size = args
        array = make_array(kind)(context, builder)
        data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
        each = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        populate_array(array, data=data, shape=[size], strides=[each], itemsize=each, meminfo=None)
        return array._getvalue()

    return kind(whole, whole), build


@operation
def floats(_: Any, address: Any, size: Any) -> Any:
    """The float32 numbers that lie at an address."""
    return _lying(types.Array(types.float32, 1, "C"), types.int64)


@operation
def octets(_: Any, address: Any, size: Any) -> Any:
    """The bytes that lie at an address."""
    return _lying(types.Array(types.uint8, 1, "C"), types.int64)


MAX_STACK_BYTES = 65536
"""Numbers that a kernel may ask for: a quarter of a megabyte."""


@operation
def reserve(_: Any, size: Any) -> Any:
    """The address of so many float32. A constant size is taken apart by LLVM, number by number.

    Memory of a thread's own stack, for what a kernel needs only while it runs.

        tile = floats(reserve(size), size)

    It is there until the kernel that reserved it returns: `reserve` is an operation, not a function that
    would give the memory back before its caller has used it.
    """

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        room = builder.alloca(ir.FloatType(), args[0])
        room.align = 64
        return builder.ptrtoint(room, ir.IntType(64))

    return types.int64(types.int64), build
