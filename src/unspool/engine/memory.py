"""Memory for kernels: aligned arrays, a buffer pool, and arenas for weights.

The operating system clears every page that it hands out and takes back large freed blocks. For [64, 49152]
log-probabilities this takes longer than computing them. Large pages are slow to get, and if memory is
fragmented the system hands out small pages, with which a step of many rows takes a quarter longer. So the
memory of KV caches, results and scratch returns to a pool, up to MAX_POOLED_FLOATS.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]

CACHE_LINE_BYTES = 64
MAX_POOLED_FLOATS = 2**26
"""Idle floats in the pool, at most: a quarter of a gigabyte."""
MIN_POOLED_FLOATS = 2**14
"""Floats of a pooled array, at least; malloc keeps smaller ones."""
MAX_STACK_FLOATS = 65536
"""Floats that a kernel may allocate on the stack: a quarter of a megabyte."""

_idle_buffers: list[Floats] = []
_pool_lock = threading.RLock()  # reentrant: garbage collection may return a buffer while one is taken


def _aligned_bytes(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + CACHE_LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE_BYTES
    return memory[start : start + size]


def empty_aligned(*shape: int) -> Floats:
    """An uninitialised float32 array aligned to a cache line: a vector across two lines costs twice."""
    return _aligned_bytes(4 * math.prod(shape)).view(np.float32).reshape(shape)


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
    if size < MIN_POOLED_FLOATS:
        return empty_aligned(*shape)
    buffer: Floats = np.asarray(PooledBuffer(take_buffer(size)))
    return buffer[:size].reshape(shape)


def _after_fork() -> None:
    global _pool_lock
    _pool_lock = threading.RLock()  # its owner does not exist in the child process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


ARENA_BYTES = 2**25
"""Bytes of an arena. Tensors larger than a quarter of it are allocated separately."""


class WeightMemory:
    """Arena allocator for weights, in large arrays for which the system uses 2 MB pages.

    A step reads all weights. With 2 MB pages instead of 4 kB the processor looks up fewer pages and reads an
    eighth faster. numpy requests such pages for arrays of several megabytes; torch does not, and most
    matrices are smaller. An arena is freed with its last tensor.
    """

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised tensor, like `torch.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        memory = _aligned_bytes(size) if size > ARENA_BYTES // 4 else self._allocate(size)
        return torch.from_numpy(memory).view(dtype).reshape(tuple(shape))

    def _allocate(self, size: int) -> NDArray[np.uint8]:
        rounded = -(-size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        with self._lock:
            if rounded > self._free.size:
                self._free = _aligned_bytes(ARENA_BYTES)
            taken, self._free = self._free[:size], self._free[rounded:]
        return taken


WEIGHT_MEMORY = WeightMemory()
"""The arenas of this process."""
