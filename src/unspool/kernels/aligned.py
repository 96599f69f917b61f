"""Arrays that begin where a line of the cache begins: lanes that lie across two lines cost twice."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LINE = 64
"""Bytes."""


def aligned(*shape: int) -> NDArray[np.float32]:
    """An empty array of float32."""
    size = 4 * math.prod(shape)
    octets = np.empty(size + LINE, np.uint8)
    begin = -octets.ctypes.data % LINE
    return octets[begin : begin + size].view(np.float32).reshape(shape)  # numpy puts an empty one anywhere
