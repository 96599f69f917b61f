"""Numbers in a row copied, or added to others, WIDTH at a time.

A compiler does so by itself only where it sees that the two arrays are not the same memory; where it cannot,
it takes one number after another, ten times as long.
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, load, plus, store


@kernel
def copy(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] = x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, load(x, at + i))
    for i in range(even, size):
        y[to + i] = x[at + i]


@kernel
def add(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] += x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, plus(load(y, to + i), load(x, at + i)))
    for i in range(even, size):
        y[to + i] += x[at + i]
