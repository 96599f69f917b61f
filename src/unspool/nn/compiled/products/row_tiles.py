"""How the rows of x and w meet in a product, whatever w is made of.

Four rows of x, or two, or one, meet STREAMS of w at a time (`dot_tile`). Those of w are far apart, each the
beginning of an even part of them: memory gives a few long streams as fast as one, and neighbouring rows,
which would be short ones, at half that speed. From five rows of x on, w passes in tiles that stay in a near
cache while all rows of x pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unspool.kernels.dot_tile import Layout, tile_of
from unspool.kernels.kernel import NOUGHT, kernel, small_kernel
from unspool.kernels.lanes import WIDTH

STREAMS = WIDTH // 4
"""Rows of w at a time: four rows of x then have a register's worth of sums."""
TILE = 2**17
"""Numbers of w in a tile, about."""
LONG = 2**18
"""Numbers of w that a thread takes at a time for up to four rows of x, which wait for memory, at most."""


class Outputs(NamedTuple):
    """Where y lies: row n's output o at y[n · width + shift + o]."""

    y: Any
    width: int
    shift: int


@small_kernel
def piece_size(outputs: int, inputs: int, rows: int, threads: int) -> int:
    """Rows of w that one thread takes at a time: about as many pieces for each thread."""
    if threads == 1:
        return outputs
    most = LONG if rows <= 4 else TILE
    rounds = outputs * inputs // (most * threads) + 1
    return (outputs // (rounds * threads) // STREAMS + 1) * STREAMS


def product_of(layout: Layout) -> Callable[..., Any]:
    """The product with w in a layout.

    It is given w and the distance of two of its rows in memory, the inputs that are multiplied (a multiple of
    WIDTH), x and the distance of two of its rows, their number, where y lies, and which rows of w are meant.
    """
    four, two, one = (tile_of(R, STREAMS, layout) for R in (4, 2, 1))

    @kernel
    def multiply(
        w: Any, size: int, inputs: int, x: Any, between: int, rows: int, out: Outputs, first: int, last: int
    ) -> None:
        tile = last - first if rows <= 4 else max(STREAMS, TILE // max(1, inputs) // STREAMS * STREAMS)
        y, below = out.y, out.width
        for start in range(first, last, tile):
            count = min(tile, last - start)
            beside = count // STREAMS
            apart, length = beside * size, count - (STREAMS - 1) * beside  # the last rows of a stream twice
            n = NOUGHT
            while n + 4 <= rows:
                to = n * below + out.shift
                for o in range(start, start + length):
                    four(w, o * size, apart, x, n * between, between, inputs, y, to + o, beside, below)
                n += 4
            if n + 2 <= rows:
                to = n * below + out.shift
                for o in range(start, start + length):
                    two(w, o * size, apart, x, n * between, between, inputs, y, to + o, beside, below)
                n += 2
            if n < rows:
                to = n * below + out.shift
                for o in range(start, start + length):
                    one(w, o * size, apart, x, n * between, between, inputs, y, to + o, beside, below)

    return multiply
