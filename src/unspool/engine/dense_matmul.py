"""Matrix products with float32 weights.

    y_no = Σ_i w_oi · x_ni

The order of each sum does not depend on the number of rows: vectors within groups of GROUP inputs (`simd`),
then the groups one after another, then the inputs behind the last whole vector.

Up to MAX_ROWS_IN_ONE_PASS rows of x meet a few rows of w at a time (`dot_products`). These rows of w are far
apart, each at the start of an equal part of w: memory delivers a few long streams as fast as one, but
neighbouring rows, which are short streams, at half that speed. More rows of x take w in tiles that stay in
the cache while all rows of x pass: the first rows of x load a tile, the others use neighbouring rows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unspool.engine.dot_products import Float32Layout, Layout, tile_of
from unspool.engine.kernel import INT64_ZERO, inline_kernel, kernel
from unspool.engine.simd import WIDTH, scalar_fma

OUTPUTS_PER_TILE = WIDTH // 4
"""Rows of w per tile of four rows of x: their sums fill one vector."""
MAX_ROWS_IN_ONE_PASS = 5
"""Rows of x that take all of w in one pass, at most."""
TILE_FLOATS = 2**16
"""Numbers of w in a cached tile, about."""
MAX_CHUNK_FLOATS = 2**18
"""Numbers of w in a thread's chunk for a few rows of x, at most: these wait for memory."""
CHUNK_MULTIPLE = 16
"""A chunk is a multiple of so many rows of w, because INT8 interleaves 16 rows."""


class Outputs(NamedTuple):
    """The layout of y: output o of row n is y[n · width + shift + o]."""

    y: Any
    width: int
    shift: int


@inline_kernel
def _tile_rows(inputs: int) -> int:
    """Rows of w in a cached tile."""
    return max(OUTPUTS_PER_TILE, TILE_FLOATS // max(1, inputs) // OUTPUTS_PER_TILE * OUTPUTS_PER_TILE)


@inline_kernel
def chunk_size(outputs: int, inputs: int, rows: int, threads: int) -> int:
    """Rows of w in a chunk; each thread gets about the same number of chunks."""
    if threads == 1:
        return (
            outputs
            if rows <= MAX_ROWS_IN_ONE_PASS
            else max(CHUNK_MULTIPLE, _tile_rows(inputs) // CHUNK_MULTIPLE * CHUNK_MULTIPLE)
        )
    most = MAX_CHUNK_FLOATS if rows <= MAX_ROWS_IN_ONE_PASS else TILE_FLOATS
    rounds = outputs * inputs // (most * threads) + 1
    return (outputs // (rounds * threads) // CHUNK_MULTIPLE + 1) * CHUNK_MULTIPLE


def _strided_tiles(R: int, C: int, layout: Layout) -> Callable[..., Any]:
    """R rows of x, from the n-th on, with `count` rows of w, C at a time and far apart."""
    tile = tile_of(R, C, layout)

    @kernel
    def multiply(
        w: Any, size: int, inputs: int, x: Any, x_stride: int, n: int, out: Outputs, start: int, count: int
    ) -> None:
        stream_rows = count // C
        to = n * out.width + out.shift
        for o in range(start, start + count - (C - 1) * stream_rows):  # recomputes the last rows of a stream
            tile(
                w,
                o * size,
                stream_rows * size,
                x,
                n * x_stride,
                x_stride,
                inputs,
                out.y,
                to + o,
                stream_rows,
                out.width,
            )

    return multiply


def product_of(layout: Layout) -> Callable[..., Any]:
    """The matrix product with w in a layout.

    Its arguments: w and the stride of its rows; the number of inputs (a multiple of WIDTH); x, the stride of
    its rows and their number; the layout of y; the range of rows of w.
    """
    five = _strided_tiles(MAX_ROWS_IN_ONE_PASS, WIDTH // MAX_ROWS_IN_ONE_PASS, layout)
    four, three, two, one = (_strided_tiles(R, OUTPUTS_PER_TILE, layout) for R in (4, 3, 2, 1))
    near = tile_of(4, OUTPUTS_PER_TILE, layout, neighbours=True)

    @kernel
    def multiply(
        w: Any, size: int, inputs: int, x: Any, x_stride: int, rows: int, out: Outputs, first: int, last: int
    ) -> None:
        tile = last - first if rows <= MAX_ROWS_IN_ONE_PASS else _tile_rows(inputs)
        for start in range(first, last, tile):
            count = min(tile, last - start)
            n = INT64_ZERO
            if rows > 4 and rows % 4 == 1:
                five(w, size, inputs, x, x_stride, n, out, start, count)
                n += 5
            while n + 4 <= rows and (n == 0 or count < OUTPUTS_PER_TILE):
                four(w, size, inputs, x, x_stride, n, out, start, count)
                n += 4
            while n + 4 <= rows:
                to = n * out.width + out.shift
                for begin in range(start, start + count, OUTPUTS_PER_TILE):
                    o = min(begin, start + count - OUTPUTS_PER_TILE)  # recomputes the last ones
                    near(w, o * size, size, x, n * x_stride, x_stride, inputs, out.y, to + o, 1, out.width)
                n += 4
            if n + 3 == rows:
                three(w, size, inputs, x, x_stride, n, out, start, count)
            elif n + 2 == rows:
                two(w, size, inputs, x, x_stride, n, out, start, count)
            elif n < rows:
                one(w, size, inputs, x, x_stride, n, out, start, count)

    return multiply


GROUP = 256
"""Inputs that are summed before they are added to the total."""

_whole_vectors = product_of(Float32Layout(GROUP))


@kernel
def _add_remainder(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add the inputs behind the last whole vector, one by one."""
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            total = out.y[at]
            for i in range(inputs // WIDTH * WIDTH, inputs):
                total = scalar_fma(w[o * inputs + i], x[n * inputs + i], total)
            out.y[at] = total


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x with the rows of w from `first` to `last` − 1."""
    _whole_vectors(w, inputs, inputs // WIDTH * WIDTH, x, inputs, rows, out, first, last)
    if inputs % WIDTH:
        _add_remainder(w, inputs, x, rows, out, first, last)
