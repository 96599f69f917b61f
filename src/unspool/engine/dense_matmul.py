"""Products with float32 weights: as they lie, or a tile of packed ones that was restored.

    y_no = Σ_i w_oi · x_ni

Whatever the number of rows, the sum of each is made in one order: lanes within groups of GROUP inputs, then
groups one after another (`lanes`), then what is behind the last whole lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unspool.engine.dot_products import Layout, Singles, tile_of
from unspool.engine.kernel import NOUGHT, kernel, small_kernel
from unspool.engine.simd import WIDTH, fused

BESIDE = WIDTH // 4
"""Rows of w that four rows of x meet at a time: they then have a register's worth of sums."""
FEW = 5
"""Rows of x, at most, that meet all of w in one pass."""
TILE = 2**16
"""Numbers of w in a tile, about."""
LONG = 2**18
"""Numbers of w that a thread takes at a time for a few rows of x, which wait for memory, at most."""
EVEN = 16
"""A thread takes a multiple of so many rows of w: in one format they lie side by side (`int8_tiles`)."""


class Outputs(NamedTuple):
    """Where y lies: row n's output o at y[n · width + shift + o].

    How the rows of x and w meet in a product, whatever w is made of.

    Up to five rows of x meet a few of w at a time (`dot_tile`), so many that their sums fill a register.
    Those of w are far apart, each the beginning of an even part of them: memory gives a few long streams as
    fast as one, and neighbouring rows, which would be short ones, at half that speed. From six rows of x on,
    w passes in tiles that stay in a near cache while all rows of x pass: the first rows of x fetch a tile,
    and those that find it there take neighbouring rows of it, whose sums are stored at once.
    """

    y: Any
    width: int
    shift: int


@small_kernel
def _tile_rows(inputs: int) -> int:
    """Rows of w in a tile."""
    return max(BESIDE, TILE // max(1, inputs) // BESIDE * BESIDE)


@small_kernel
def piece_size(outputs: int, inputs: int, rows: int, threads: int) -> int:
    """Rows of w that one thread takes at a time: about as many pieces for each thread."""
    if threads == 1:
        return outputs if rows <= FEW else max(EVEN, _tile_rows(inputs) // EVEN * EVEN)
    most = LONG if rows <= FEW else TILE
    rounds = outputs * inputs // (most * threads) + 1
    return (outputs // (rounds * threads) // EVEN + 1) * EVEN


def _far_apart(R: int, C: int, layout: Layout) -> Callable[..., Any]:
    """R rows of x, from the n-th on, with `count` rows of w, C of which are taken at a time, far apart."""
    tile = tile_of(R, C, layout)

    @kernel
    def meet(
        w: Any, size: int, inputs: int, x: Any, between: int, n: int, out: Outputs, start: int, count: int
    ) -> None:
        beside = count // C
        to = n * out.width + out.shift
        for o in range(start, start + count - (C - 1) * beside):  # the last rows of a stream twice
            tile(
                w, o * size, beside * size, x, n * between, between, inputs, out.y, to + o, beside, out.width
            )

    return meet


def product_of(layout: Layout) -> Callable[..., Any]:
    """The product with w in a layout.

    It is given w and the distance of two of its rows in memory, the inputs that are multiplied (a multiple of
    WIDTH), x and the distance of two of its rows, their number, where y lies, and which rows of w are meant.
    """
    five = _far_apart(FEW, WIDTH // FEW, layout)
    four, three, two, one = (_far_apart(R, BESIDE, layout) for R in (4, 3, 2, 1))
    near = tile_of(4, BESIDE, layout, neighbours=True)

    @kernel
    def multiply(
        w: Any, size: int, inputs: int, x: Any, between: int, rows: int, out: Outputs, first: int, last: int
    ) -> None:
        tile = last - first if rows <= FEW else _tile_rows(inputs)
        for start in range(first, last, tile):
            count = min(tile, last - start)
            n = NOUGHT
            if rows > 4 and rows % 4 == 1:
                five(w, size, inputs, x, between, n, out, start, count)
                n += 5
            while n + 4 <= rows and (n == 0 or count < BESIDE):
                four(w, size, inputs, x, between, n, out, start, count)
                n += 4
            while n + 4 <= rows:
                to = n * out.width + out.shift
                for begin in range(start, start + count, BESIDE):
                    o = min(begin, start + count - BESIDE)  # the last ones twice
                    near(w, o * size, size, x, n * between, between, inputs, out.y, to + o, 1, out.width)
                n += 4
            if n + 3 == rows:
                three(w, size, inputs, x, between, n, out, start, count)
            elif n + 2 == rows:
                two(w, size, inputs, x, between, n, out, start, count)
            elif n < rows:
                one(w, size, inputs, x, between, n, out, start, count)

    return multiply


GROUP = 256
"""Inputs that are added up before they join the sum: few enough that several such sums are made at once."""

_even = product_of(Singles(GROUP))


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
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x with the rows of w from `first` to `last` − 1."""
    _even(w, inputs, inputs // WIDTH * WIDTH, x, inputs, rows, out, first, last)
    if inputs % WIDTH:
        _left_over(w, inputs, x, rows, out, first, last)
