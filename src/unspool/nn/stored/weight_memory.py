"""Memory for weights that stay: cut from large pieces, which the system keeps in large pages.

A step reads all weights from the first to the last. Where pages are of 2 MB rather than 4 kB, the processor
looks up fewer of them, and memory gives an eighth more. numpy asks for such pages for arrays of several
megabytes, torch does not, and most matrices are smaller.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

PIECE = 2**25
"""Bytes of a piece. What is larger than a quarter of it has one of its own."""
LINE = 64
"""A weight begins where a line of the cache begins."""


class WeightMemory:
    """A piece, and how much of it is given away. It is freed with the last tensor that lies in it."""

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)
        self._cutting = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor with nothing in it yet, as `torch.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        octets = _aligned(size) if size > PIECE // 4 else self._cut(size)
        return torch.from_numpy(octets).view(dtype).reshape(tuple(shape))

    def copy(self, tensor: Tensor) -> Tensor:
        """The same numbers, here."""
        return self.empty(tensor.shape, tensor.dtype).copy_(tensor)

    def _cut(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        rounded = -(-size // LINE) * LINE
        with self._cutting:
            if rounded > self._left.size:
                self._left = _aligned(PIECE)
            taken, self._left = self._left[:size], self._left[rounded:]
        return taken


def _aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    octets = np.empty(size + LINE, np.uint8)
    begin = -octets.ctypes.data % LINE
    return octets[begin : begin + size]


WEIGHT_MEMORY = WeightMemory()
"""That of this process."""
