"""Products with float32 weights, row by row as they lie.

    y_no = Σ_i w_oi · x_ni

One row of x is bound by memory: the rows of w are read one after another, as fast as memory gives them.
With more rows every weight that has come is used for up to eight of them while the next ones are on their
way; from nine rows on, for four rows of x and two of w at a time, of a tile of w that stays in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, prefetch, spread, total

ZERO = np.float32(0)
AHEAD = 2304
"""How many weights ahead of the one in use memory is asked for."""
TILE = 32
"""Rows of w that stay in the cache while many rows of x pass."""


@kernel
def _left_over(w: Any, x: Any, rows: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    """Add what is behind the last eight inputs, one by one."""
    for n in range(rows):
        for o in range(first, last):
            found = y[n * outputs + o]
            for i in range(inputs // WIDTH * WIDTH, inputs):
                found = fused(w[o * inputs + i], x[n * inputs + i], found)
            y[n * outputs + o] = found


@kernel
def _one(w: Any, x: Any, n: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    for o in range(first, last):
        a = spread(ZERO)
        for i in range(0, even, WIDTH):
            a = fma(load(w, o * inputs + i), load(x, n * inputs + i), a)
        y[n * outputs + o] = total(a)


@kernel
def _two(w: Any, x: Any, n: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    x0, x1 = n * inputs, (n + 1) * inputs
    for o in range(first, last):
        a = b = spread(ZERO)
        at = o * inputs
        for i in range(0, even, WIDTH):
            v = load(w, at + i)
            prefetch(w, at + i + AHEAD)
            a = fma(v, load(x, x0 + i), a)
            b = fma(v, load(x, x1 + i), b)
        y[n * outputs + o] = total(a)
        y[(n + 1) * outputs + o] = total(b)


@kernel
def _four(w: Any, x: Any, n: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * inputs, (n + 1) * inputs, (n + 2) * inputs, (n + 3) * inputs
    for o in range(first, last):
        a = b = c = d = spread(ZERO)
        at = o * inputs
        for i in range(0, even, WIDTH):
            v = load(w, at + i)
            prefetch(w, at + i + AHEAD)
            a = fma(v, load(x, x0 + i), a)
            b = fma(v, load(x, x1 + i), b)
            c = fma(v, load(x, x2 + i), c)
            d = fma(v, load(x, x3 + i), d)
        y[n * outputs + o] = total(a)
        y[(n + 1) * outputs + o] = total(b)
        y[(n + 2) * outputs + o] = total(c)
        y[(n + 3) * outputs + o] = total(d)


@kernel
def _eight(w: Any, x: Any, n: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * inputs, (n + 1) * inputs, (n + 2) * inputs, (n + 3) * inputs
    x4, x5, x6, x7 = (n + 4) * inputs, (n + 5) * inputs, (n + 6) * inputs, (n + 7) * inputs
    for o in range(first, last):
        a = b = c = d = e = f = g = h = spread(ZERO)
        at = o * inputs
        for i in range(0, even, WIDTH):
            v = load(w, at + i)
            prefetch(w, at + i + AHEAD)
            a = fma(v, load(x, x0 + i), a)
            b = fma(v, load(x, x1 + i), b)
            c = fma(v, load(x, x2 + i), c)
            d = fma(v, load(x, x3 + i), d)
            e = fma(v, load(x, x4 + i), e)
            f = fma(v, load(x, x5 + i), f)
            g = fma(v, load(x, x6 + i), g)
            h = fma(v, load(x, x7 + i), h)
        y[n * outputs + o] = total(a)
        y[(n + 1) * outputs + o] = total(b)
        y[(n + 2) * outputs + o] = total(c)
        y[(n + 3) * outputs + o] = total(d)
        y[(n + 4) * outputs + o] = total(e)
        y[(n + 5) * outputs + o] = total(f)
        y[(n + 6) * outputs + o] = total(g)
        y[(n + 7) * outputs + o] = total(h)


@kernel
def _four_by_two(w: Any, x: Any, n: int, inputs: int, y: Any, outputs: int, first: int, last: int) -> None:
    """Four rows of x and two rows of w: `last − first` is even."""
    even = inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * inputs, (n + 1) * inputs, (n + 2) * inputs, (n + 3) * inputs
    for o in range(first, last, 2):
        a = b = c = d = e = f = g = h = spread(ZERO)
        at, below = o * inputs, (o + 1) * inputs
        for i in range(0, even, WIDTH):
            v, w1 = load(w, at + i), load(w, below + i)
            u = load(x, x0 + i)
            a = fma(v, u, a)
            e = fma(w1, u, e)
            u = load(x, x1 + i)
            b = fma(v, u, b)
            f = fma(w1, u, f)
            u = load(x, x2 + i)
            c = fma(v, u, c)
            g = fma(w1, u, g)
            u = load(x, x3 + i)
            d = fma(v, u, d)
            h = fma(w1, u, h)
        y[n * outputs + o] = total(a)
        y[(n + 1) * outputs + o] = total(b)
        y[(n + 2) * outputs + o] = total(c)
        y[(n + 3) * outputs + o] = total(d)
        y[n * outputs + o + 1] = total(e)
        y[(n + 1) * outputs + o + 1] = total(f)
        y[(n + 2) * outputs + o + 1] = total(g)
        y[(n + 3) * outputs + o + 1] = total(h)


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, y: Any, outputs: int, first: int, last: int) -> None:
    """y[n, o] = Σ_i w[o, i] · x[n, i] for all rows n and the outputs o from `first` to `last` − 1."""
    tile = last - first if rows == 1 else TILE
    for start in range(first, last, tile):
        stop = min(start + tile, last)
        pairs = start + (stop - start) // 2 * 2
        n = NOUGHT
        while rows > 8 and n + 4 <= rows:
            _four_by_two(w, x, n, inputs, y, outputs, start, pairs)
            for odd in range(pairs, stop):
                for row in range(n, n + 4):
                    _one(w, x, row, inputs, y, outputs, odd, odd + 1)
            n += 4
        while n < rows:
            left = rows - n
            if left >= 8:
                _eight(w, x, n, inputs, y, outputs, start, stop)
                n += 8
            elif left >= 4:
                _four(w, x, n, inputs, y, outputs, start, stop)
                n += 4
            elif left >= 2:
                _two(w, x, n, inputs, y, outputs, start, stop)
                n += 2
            else:
                _one(w, x, n, inputs, y, outputs, start, stop)
                n += 1
    if inputs % WIDTH:
        _left_over(w, x, rows, inputs, y, outputs, first, last)
