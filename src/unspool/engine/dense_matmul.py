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

from unspool.engine.dot_products import tile_of
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


GROUP = 256
"""Inputs that are summed before they are added to the total."""


def _strided_tiles(R: int, C: int) -> Callable[..., Any]:
    """R rows of x, from the n-th on, with `count` rows of w, C at a time and far apart."""
    tile = tile_of(R, C, GROUP)

    @kernel
    def multiply(w: Any, inputs: int, x: Any, n: int, out: Outputs, start: int, count: int) -> None:
        stream, even = count // C, inputs // WIDTH * WIDTH
        x_start, to = n * inputs, n * out.width + out.shift
        for o in range(start, start + count - (C - 1) * stream):  # recomputes the last rows of a stream
            y_start = to + o
            tile(w, o * inputs, stream * inputs, x, x_start, inputs, even, out.y, y_start, stream, out.width)

    return multiply


_five = _strided_tiles(MAX_ROWS_IN_ONE_PASS, WIDTH // MAX_ROWS_IN_ONE_PASS)
_four, _three, _two, _one = (_strided_tiles(R, OUTPUTS_PER_TILE) for R in (4, 3, 2, 1))
_near = tile_of(4, OUTPUTS_PER_TILE, GROUP, neighbours=True)


@kernel
def _multiply_whole_vectors(
    w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int
) -> None:
    tile = last - first if rows <= MAX_ROWS_IN_ONE_PASS else _tile_rows(inputs)
    even = inputs // WIDTH * WIDTH
    for start in range(first, last, tile):
        count = min(tile, last - start)
        n = INT64_ZERO
        if rows > 4 and rows % 4 == 1:
            _five(w, inputs, x, n, out, start, count)
            n += 5
        while n + 4 <= rows and (n == 0 or count < OUTPUTS_PER_TILE):
            _four(w, inputs, x, n, out, start, count)
            n += 4
        while n + 4 <= rows:
            to = n * out.width + out.shift
            for begin in range(start, start + count, OUTPUTS_PER_TILE):
                o = min(begin, start + count - OUTPUTS_PER_TILE)  # recomputes the last ones
                _near(w, o * inputs, inputs, x, n * inputs, inputs, even, out.y, to + o, 1, out.width)
            n += 4
        if n + 3 == rows:
            _three(w, inputs, x, n, out, start, count)
        elif n + 2 == rows:
            _two(w, inputs, x, n, out, start, count)
        elif n < rows:
            _one(w, inputs, x, n, out, start, count)


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
    _multiply_whole_vectors(w, inputs, x, rows, out, first, last)
    if inputs % WIDTH:
        _add_remainder(w, inputs, x, rows, out, first, last)
