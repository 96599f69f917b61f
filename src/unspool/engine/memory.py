"""Memory for kernels: aligned arrays, a buffer pool, arrays at an address, and stack memory.

The operating system clears every page that it hands out and takes back large freed blocks. For [64, 49152]
log-probabilities this takes longer than computing them. Large pages are slow to get, and if memory is
fragmented the system hands out small pages, with which a step of many rows takes a quarter longer. So the
memory of KV caches, results and scratch returns to a pool, up to MAX_POOLED_FLOATS.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from unspool.engine.kernel import llvm_intrinsic

Floats = NDArray[np.float32]

CACHE_LINE_BYTES = 64
MAX_POOLED_FLOATS = 2**26
"""Idle floats in the pool, at most: a quarter of a gigabyte."""
POOLED_SIZES = range(2**14, 2**24 + 1)
"""Sizes that `empty_pooled` pools. malloc keeps smaller ones; larger ones are not results of a step."""
MAX_STACK_FLOATS = 65536
"""Floats that a kernel may allocate on the stack: a quarter of a megabyte."""

_idle_buffers: list[Floats] = []
_pool_lock = threading.RLock()  # reentrant: garbage collection may return a buffer while one is taken


def empty_aligned(*shape: int) -> Floats:
    """An uninitialised float32 array aligned to a cache line: a vector across two lines costs twice."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE_BYTES
    return memory[start : start + size].view(np.float32).reshape(shape)


def take_buffer(size: int) -> Floats:
    """At least `size` uninitialised floats: the smallest idle buffer of at most twice the size, or new."""
    with _pool_lock:
        fitting = [index for index, buffer in enumerate(_idle_buffers) if size <= buffer.size <= 2 * size]
        if fitting:
            return _idle_buffers.pop(min(fitting, key=lambda index: _idle_buffers[index].size))
    try:
        return empty_aligned(size)
    except MemoryError:
        if not _idle_buffers:
            raise
        _idle_buffers.clear()
        return empty_aligned(size)


def return_buffer(buffer: Floats) -> None:
    """Return an unused buffer; the pool frees its oldest buffers above its limit."""
    if not 0 < buffer.size <= MAX_POOLED_FLOATS:
        return
    with _pool_lock:
        _idle_buffers.append(buffer)
        while sum(each.size for each in _idle_buffers) > MAX_POOLED_FLOATS:
            del _idle_buffers[0]


class PooledBuffer:
    """The owner of pooled memory: it lives as long as any array, view or tensor of that memory.

    NumPy makes the owner the base of every view of a view, and torch holds the array behind a tensor. So
    this object is deleted exactly when the last user is gone.
    """

    def __init__(self, buffer: Floats) -> None:
        self._buffer = buffer
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        """Return the memory to the pool."""
        return_buffer(self._buffer)


def empty_pooled(*shape: int) -> Floats:
    """An uninitialised array whose memory returns to the pool when its last view is gone."""
    size = int(np.prod(shape, dtype=np.int64))
    if size not in POOLED_SIZES:
        return empty_aligned(*shape)
    buffer: Floats = np.asarray(PooledBuffer(take_buffer(size)))
    return buffer[:size].reshape(shape)


def _after_fork() -> None:
    global _pool_lock
    _pool_lock = threading.RLock()  # its owner does not exist in the child process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# ── arrays at an address: memory of torch or of a mapped file, which the caller keeps alive ──────


def _array_at(kind: types.Array) -> Any:
    """An intrinsic of (address, size): the contiguous array of this type at the address."""

    def build(context: Any, builder: Any, _: Any, args: Any) -> Any:
        address, size = args
        array = context.make_array(kind)(context, builder)
        itemsize = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        array.data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
        array.shape, array.strides = (cgutils.pack_array(builder, [it]) for it in (size, itemsize))
        array.itemsize, array.nitems = itemsize, size
        return array._getvalue()  # meminfo and parent are null: the array does not own its memory

    return kind(types.int64, types.int64), build


@llvm_intrinsic
def floats_at(_: Any, address: Any, size: Any) -> Any:
    """The float32 array at an address."""
    return _array_at(types.Array(types.float32, 1, "C"))


@llvm_intrinsic
def bytes_at(_: Any, address: Any, size: Any) -> Any:
    """The uint8 array at an address."""
    return _array_at(types.Array(types.uint8, 1, "C"))


@llvm_intrinsic
def stack_alloc(_: Any, size: Any) -> Any:
    """The address of so many float32 on this thread's stack, valid until the calling kernel returns.

        tile = floats_at(stack_alloc(size), size)

    An intrinsic, because a function would free the memory when it returns. Do not pass a literal size: LLVM
    would split the memory into single numbers.
    """

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        memory = builder.alloca(ir.FloatType(), args[0])
        memory.align = 64
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.int64(types.int64), build
