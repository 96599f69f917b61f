"""Products with float32 weights: as they lie, or a tile of packed ones that was restored.

    y_no = Σ_i w_oi · x_ni

One row of x is bound by memory: the rows of w are read one after another, as fast as memory gives them. Of
more rows four meet two of w at a time, so that six numbers that are fetched serve eight products; from eight
rows on, of a tile of w that stays in the cache. Whatever the number of rows, the sum of each is made in one
order: lanes within groups of GROUP inputs, then groups one after another (`lanes`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, plus, prefetch, spread, total

GROUP = 256
"""Inputs that are added up before they join the sum: few enough that several such sums are made at once."""
AHEAD = 2048
"""How many weights ahead of the one in use memory is asked for."""
TILE = 49152
"""Numbers of w that stay in a near cache while rows of x pass, about."""

ZERO = np.float32(0)


class Outputs(NamedTuple):
    """Where y lies: row n's output o at y[n · width + shift + o]."""

    y: Any
    width: int
    shift: int


@kernel
def _left_over(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add what is behind the last whole lanes, one by one."""
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            found = out.y[at]
            for i in range(inputs // WIDTH * WIDTH, inputs):
                found = fused(w[o * inputs + i], x[n * inputs + i], found)
            out.y[at] = found


@kernel
def _one(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    for o in range(first, last):
        A = spread(ZERO)
        at = o * inputs
        for start in range(0, even, GROUP):
            a = spread(ZERO)
            for i in range(start, min(start + GROUP, even), WIDTH):
                a = fma(load(w, at + i), load(x, n * inputs + i), a)
            A = plus(A, a)
        out.y[n * out.width + out.shift + o] = total(A)


@kernel
def _two(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = inputs // WIDTH * WIDTH
    x0, x1 = n * inputs, (n + 1) * inputs
    for o in range(first, last):
        A = B = spread(ZERO)
        at = o * inputs
        for start in range(0, even, GROUP):
            a = b = spread(ZERO)
            for i in range(start, min(start + GROUP, even), WIDTH):
                v = load(w, at + i)
                prefetch(w, at + i + AHEAD)
                a = fma(v, load(x, x0 + i), a)
                b = fma(v, load(x, x1 + i), b)
            A, B = plus(A, a), plus(B, b)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)


@kernel
def _four_by_two(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, half: int) -> None:
    """Four rows of x; of w the rows from `first` on, in pairs that are `half` apart: two straight streams."""
    even = inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * inputs, (n + 1) * inputs, (n + 2) * inputs, (n + 3) * inputs
    for o in range(first, first + half):
        A = B = C = D = E = F = G = H = spread(ZERO)
        at, apart = o * inputs, (o + half) * inputs
        for start in range(0, even, GROUP):
            a = b = c = d = e = f = g = h = spread(ZERO)
            for i in range(start, min(start + GROUP, even), WIDTH):
                v, z = load(w, at + i), load(w, apart + i)
                u = load(x, x0 + i)
                a, e = fma(v, u, a), fma(z, u, e)
                u = load(x, x1 + i)
                b, f = fma(v, u, b), fma(z, u, f)
                u = load(x, x2 + i)
                c, g = fma(v, u, c), fma(z, u, g)
                u = load(x, x3 + i)
                d, h = fma(v, u, d), fma(z, u, h)
            A, B, C, D = plus(A, a), plus(B, b), plus(C, c), plus(D, d)
            E, F, G, H = plus(E, e), plus(F, f), plus(G, g), plus(H, h)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)
        out.y[to + 2 * out.width] = total(C)
        out.y[to + 3 * out.width] = total(D)
        to += half
        out.y[to] = total(E)
        out.y[to + out.width] = total(F)
        out.y[to + 2 * out.width] = total(G)
        out.y[to + 3 * out.width] = total(H)


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x with the rows of w from `first` to `last` − 1."""
    once = rows == 1 or rows == 2 or rows == 4  # others pass more than once, and the second time it is near
    tile = last - first if once else max(4, TILE // inputs // 2 * 2)
    for start in range(first, last, tile):
        stop = min(start + tile, last)
        half = (stop - start) // 2
        n = NOUGHT
        while n + 4 <= rows:
            _four_by_two(w, inputs, x, n, out, start, half)
            if start + 2 * half < stop:
                _two(w, inputs, x, n, out, stop - 1, stop)
                _two(w, inputs, x, n + 2, out, stop - 1, stop)
            n += 4
        if n + 2 <= rows:
            _two(w, inputs, x, n, out, start, stop)
            n += 2
        if n < rows:
            _one(w, inputs, x, n, out, start, stop)
    if inputs % WIDTH:
        _left_over(w, inputs, x, rows, out, first, last)
