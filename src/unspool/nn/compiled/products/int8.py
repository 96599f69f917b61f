"""Weights as whole numbers of eight bits, in groups of 64 inputs with a scale: the format of our own.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

A group is 68 bytes: s in float32, then q from −127 to 127; a row's last group is filled up with zeros. The
scale is multiplied once for each group, which spares a multiplication for each number of a single row. The
rows of w and x meet as in `dense`; inputs behind the last whole group join one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.kernel import NOUGHT, kernel, small_kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, prefetch, spread, total
from unspool.kernels.packed import numbers, signed_codes, single
from unspool.nn.compiled.products.dense import Outputs

GROUP, BYTES, BEGIN = 64, 68, 4
"""Numbers of a group, its bytes, and where its numbers begin among them."""
TILE = 16384
"""Numbers of w that stay in the nearest cache while rows of x pass, about."""
AHEAD = 2048
"""How many bytes ahead of those in use memory is asked for."""
ZERO = np.float32(0)


@small_kernel
def _codes(w: Any, at: int) -> Any:
    return numbers(signed_codes(w, at))


@small_kernel
def row_bytes(inputs: int) -> int:
    """Bytes of a row."""
    return (inputs + GROUP - 1) // GROUP * BYTES


@kernel
def _number(w: Any, row: int, i: int) -> Any:
    """w_i of the row that begins at byte `row`."""
    at = row + i // GROUP * BYTES
    q = np.float32(w[at + BEGIN + i % GROUP])
    return (q - np.float32(256) if q > np.float32(127) else q) * single(w, at)


@kernel
def _left_over(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add what is behind the last whole group, one by one."""
    size = row_bytes(inputs)
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            found = out.y[at]
            for i in range(inputs // GROUP * GROUP, inputs):
                found = fused(_number(w, o * size, i), x[n * inputs + i], found)
            out.y[at] = found


@kernel
def _one(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    size = row_bytes(inputs)
    for o in range(first, last):
        A = spread(ZERO)
        at = o * size
        for start in range(n * inputs, n * inputs + inputs // GROUP * GROUP, GROUP):
            a = spread(ZERO)
            for i in range(0, GROUP, WIDTH):
                a = fma(_codes(w, at + BEGIN + i), load(x, start + i), a)
            A = fma(a, spread(single(w, at)), A)
            at += BYTES
        out.y[n * out.width + out.shift + o] = total(A)


@kernel
def _two(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, last: int) -> None:
    size = row_bytes(inputs)
    for o in range(first, last):
        A = B = spread(ZERO)
        at = o * size
        for start in range(n * inputs, n * inputs + inputs // GROUP * GROUP, GROUP):
            a = b = spread(ZERO)
            prefetch(w, at + AHEAD)
            for i in range(0, GROUP, WIDTH):
                v = _codes(w, at + BEGIN + i)
                a = fma(v, load(x, start + i), a)
                b = fma(v, load(x, start + inputs + i), b)
            s = spread(single(w, at))
            A, B = fma(a, s, A), fma(b, s, B)
            at += BYTES
        to = n * out.width + out.shift + o
        out.y[to] = total(A)
        out.y[to + out.width] = total(B)


@kernel
def _four_by_two(w: Any, inputs: int, x: Any, n: int, out: Outputs, first: int, half: int) -> None:
    size = row_bytes(inputs)
    for o in range(first, first + half):
        A = B = C = D = E = F = G = H = spread(ZERO)
        at, apart = o * size, (o + half) * size
        for x0 in range(n * inputs, n * inputs + inputs // GROUP * GROUP, GROUP):
            a = b = c = d = e = f = g = h = spread(ZERO)
            x1, x2, x3 = x0 + inputs, x0 + 2 * inputs, x0 + 3 * inputs
            for i in range(0, GROUP, WIDTH):
                v, z = _codes(w, at + BEGIN + i), _codes(w, apart + BEGIN + i)
                u = load(x, x0 + i)
                a, e = fma(v, u, a), fma(z, u, e)
                u = load(x, x1 + i)
                b, f = fma(v, u, b), fma(z, u, f)
                u = load(x, x2 + i)
                c, g = fma(v, u, c), fma(z, u, g)
                u = load(x, x3 + i)
                d, h = fma(v, u, d), fma(z, u, h)
            s, t = spread(single(w, at)), spread(single(w, apart))
            A, B, C, D = fma(a, s, A), fma(b, s, B), fma(c, s, C), fma(d, s, D)
            E, F, G, H = fma(e, t, E), fma(f, t, F), fma(g, t, G), fma(h, t, H)
            at += BYTES
            apart += BYTES
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
    """`dense.product` for w in this format."""
    tile = last - first if rows < 8 else max(4, TILE // inputs // 2 * 2)
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
    if inputs % GROUP:
        _left_over(w, inputs, x, rows, out, first, last)


@kernel
def row(w: Any, at: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row, from byte `at` on."""
    for i in range(inputs):
        y[to + i] = _number(w, at, i)
