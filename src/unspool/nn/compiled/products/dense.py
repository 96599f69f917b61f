"""Products with rows of float32: weights as they lie, or a tile of packed ones that was unpacked.

    y_no = Σ_g s_og Σ_{i in g} w_oi · x_ni      groups g of inputs, each with a scale s; 1 for plain weights

One row of x is bound by memory: the rows of w are read one after another, as fast as memory gives them.
With more rows every weight that has come is used for up to eight of them while the next ones are on their
way; from nine rows on, for four rows of x and two of w at a time, of a tile of w that stays in the cache.
Whatever the number of rows, the sum of each is made in one order: lanes within a group, groups one after
another (`lanes`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, prefetch, spread, total

GROUP = 256
"""Inputs that are added up before they join the sum, where scales do not say otherwise: few enough that
several such sums are made at once."""
AHEAD = 2048
"""How many weights ahead of the one in use memory is asked for."""
TILE = 32
"""Rows of w that stay in the cache while many rows of x pass."""

ZERO, ONE = np.float32(0), np.float32(1)
NO_GROUPS: Any = np.int64(0)
GROUP_SIZE: Any = np.int64(GROUP)


class Dense(NamedTuple):
    """A matrix (outputs, inputs) in float32, with scales for groups of its inputs."""

    w: Any
    inputs: int
    scales: Any
    groups: int
    """Scales of a row; 0 where there are none."""
    group: int
    """Inputs of a group."""


class Outputs(NamedTuple):
    """Where y lies: row n's output o at y[n · width + shift + o]."""

    y: Any
    width: int
    shift: int


@kernel
def plain(w: Any, inputs: int) -> Dense:
    """A matrix without scales."""
    return Dense(w, inputs, w, NO_GROUPS, GROUP_SIZE)


@kernel
def _scale(m: Dense, o: int, start: int) -> Any:
    return m.scales[o * m.groups + start // m.group] if m.groups else ONE


@kernel
def _left_over(m: Dense, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add what is behind the last whole lanes, one by one."""
    even = m.inputs // WIDTH * WIDTH
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            found = out.y[at]
            for i in range(even, m.inputs):
                found = fused(m.w[o * m.inputs + i] * _scale(m, o, i), x[n * m.inputs + i], found)
            out.y[at] = found


@kernel
def _one(m: Dense, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = m.inputs // WIDTH * WIDTH
    for o in range(first, last):
        A = spread(ZERO)
        at = o * m.inputs
        for start in range(0, even, m.group):
            a = spread(ZERO)
            for i in range(start, min(start + m.group, even), WIDTH):
                a = fma(load(m.w, at + i), load(x, n * m.inputs + i), a)
            A = fma(a, spread(_scale(m, o, start)), A)
        out.y[n * out.width + out.shift + o] = total(A)


@kernel
def _two(m: Dense, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = m.inputs // WIDTH * WIDTH
    x0, x1 = n * m.inputs, (n + 1) * m.inputs
    for o in range(first, last):
        A = B = spread(ZERO)
        at = o * m.inputs
        for start in range(0, even, m.group):
            a = b = spread(ZERO)
            for i in range(start, min(start + m.group, even), WIDTH):
                v = load(m.w, at + i)
                prefetch(m.w, at + i + AHEAD)
                a = fma(v, load(x, x0 + i), a)
                b = fma(v, load(x, x1 + i), b)
            s = spread(_scale(m, o, start))
            A, B = fma(a, s, A), fma(b, s, B)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)


@kernel
def _four(m: Dense, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = m.inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * m.inputs, (n + 1) * m.inputs, (n + 2) * m.inputs, (n + 3) * m.inputs
    for o in range(first, last):
        A = B = C = D = spread(ZERO)
        at = o * m.inputs
        for start in range(0, even, m.group):
            a = b = c = d = spread(ZERO)
            for i in range(start, min(start + m.group, even), WIDTH):
                v = load(m.w, at + i)
                prefetch(m.w, at + i + AHEAD)
                a = fma(v, load(x, x0 + i), a)
                b = fma(v, load(x, x1 + i), b)
                c = fma(v, load(x, x2 + i), c)
                d = fma(v, load(x, x3 + i), d)
            s = spread(_scale(m, o, start))
            A, B, C, D = fma(a, s, A), fma(b, s, B), fma(c, s, C), fma(d, s, D)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)
        out.y[to + 2 * out.width] = total(C)
        out.y[to + 3 * out.width] = total(D)


@kernel
def _eight(m: Dense, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    even = m.inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * m.inputs, (n + 1) * m.inputs, (n + 2) * m.inputs, (n + 3) * m.inputs
    x4, x5, x6, x7 = (n + 4) * m.inputs, (n + 5) * m.inputs, (n + 6) * m.inputs, (n + 7) * m.inputs
    for o in range(first, last):
        A = B = C = D = E = F = G = H = spread(ZERO)
        at = o * m.inputs
        for start in range(0, even, m.group):
            a = b = c = d = e = f = g = h = spread(ZERO)
            for i in range(start, min(start + m.group, even), WIDTH):
                v = load(m.w, at + i)
                prefetch(m.w, at + i + AHEAD)
                a = fma(v, load(x, x0 + i), a)
                b = fma(v, load(x, x1 + i), b)
                c = fma(v, load(x, x2 + i), c)
                d = fma(v, load(x, x3 + i), d)
                e = fma(v, load(x, x4 + i), e)
                f = fma(v, load(x, x5 + i), f)
                g = fma(v, load(x, x6 + i), g)
                h = fma(v, load(x, x7 + i), h)
            s = spread(_scale(m, o, start))
            A, B, C, D = fma(a, s, A), fma(b, s, B), fma(c, s, C), fma(d, s, D)
            E, F, G, H = fma(e, s, E), fma(f, s, F), fma(g, s, G), fma(h, s, H)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)
        out.y[to + 2 * out.width] = total(C)
        out.y[to + 3 * out.width] = total(D)
        out.y[to + 4 * out.width] = total(E)
        out.y[to + 5 * out.width] = total(F)
        out.y[to + 6 * out.width] = total(G)
        out.y[to + 7 * out.width] = total(H)


@kernel
def _four_by_two(m: Dense, x: Any, n: int, out: Outputs, first: int, half: int) -> None:
    """Four rows of x; of w the rows from `first` on, in pairs that are `half` apart: two straight streams."""
    even = m.inputs // WIDTH * WIDTH
    x0, x1, x2, x3 = n * m.inputs, (n + 1) * m.inputs, (n + 2) * m.inputs, (n + 3) * m.inputs
    for o in range(first, first + half):
        A = B = C = D = E = F = G = H = spread(ZERO)
        at, apart = o * m.inputs, (o + half) * m.inputs
        for start in range(0, even, m.group):
            a = b = c = d = e = f = g = h = spread(ZERO)
            for i in range(start, min(start + m.group, even), WIDTH):
                v, w = load(m.w, at + i), load(m.w, apart + i)
                u = load(x, x0 + i)
                a = fma(v, u, a)
                e = fma(w, u, e)
                u = load(x, x1 + i)
                b = fma(v, u, b)
                f = fma(w, u, f)
                u = load(x, x2 + i)
                c = fma(v, u, c)
                g = fma(w, u, g)
                u = load(x, x3 + i)
                d = fma(v, u, d)
                h = fma(w, u, h)
            s, t = spread(_scale(m, o, start)), spread(_scale(m, o + half, start))
            A, B, C, D = fma(a, s, A), fma(b, s, B), fma(c, s, C), fma(d, s, D)
            E, F, G, H = fma(e, t, E), fma(f, t, F), fma(g, t, G), fma(h, t, H)
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)
        out.y[to + 2 * out.width] = total(C)
        out.y[to + 3 * out.width] = total(D)
        out.y[to + half] = total(E)
        out.y[to + half + out.width] = total(F)
        out.y[to + half + 2 * out.width] = total(G)
        out.y[to + half + 3 * out.width] = total(H)


@kernel
def _up_to_eight(m: Dense, x: Any, n: int, rows: int, out: Outputs, first: int, last: int) -> None:
    """The rows of x from n on."""
    while n < rows:
        left = rows - n
        if left >= 8:
            _eight(m, x, n, out, first, last)
            n += 8
        elif left >= 4:
            _four(m, x, n, out, first, last)
            n += 4
        elif left >= 2:
            _two(m, x, n, out, first, last)
            n += 2
        else:
            _one(m, x, n, out, first, last)
            n += 1


@kernel
def product(m: Dense, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x with the rows of w from `first` to `last` − 1."""
    tile = last - first if rows <= 8 else TILE
    for start in range(first, last, tile):
        stop = min(start + tile, last)
        half = (stop - start) // 2
        n = NOUGHT
        while rows > 8 and n + 4 <= rows:
            _four_by_two(m, x, n, out, start, half)
            if start + 2 * half < stop:
                _four(m, x, n, out, start + 2 * half, stop)
            n += 4
        _up_to_eight(m, x, n, rows, out, start, stop)
    if m.inputs % WIDTH:
        _left_over(m, x, rows, out, first, last)
