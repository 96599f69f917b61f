"""Products with packed weights, in place: what all formats have in common.

    y_no = Σ_i w_oi · x_ni,   w_oi restored from its block when it is wanted

A format gives `values(w, at, i)`: lanes of restored numbers, from number i on, of the block whose bytes
begin at `at`. One row of x meets them one after another. For several rows, a few rows of w are restored into
a tile that stays in the cache, and `dense` multiplies those. The order of every sum is the same both ways.

Each format is compiled by itself when a model first has it, and called by its address.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from unspool.kernels.addresses import floats, octets
from unspool.kernels.compilation import Announcement, listening, version
from unspool.kernels.kernel import callback, kernel, small_kernel
from unspool.kernels.lanes import WIDTH, fma, load, plus, spread, store, total
from unspool.kernels.pointers import call
from unspool.kernels.stack_memory import MOST, reserve
from unspool.nn.compiled.products import dense, ggml, half_precision
from unspool.nn.compiled.products.dense import GROUP
from unspool.nn.compiled.products.row_tiles import Outputs
from unspool.nn.stored.formats import BF16, F16, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0, Format

TILE = 8192
"""Restored numbers that stay in the nearest cache, about."""
HALVES = 32
"""Numbers in half precision that are taken for a block."""
ZERO = np.float32(0)

ENTRY = types.void(*[types.int64] * 6)


@kernel
def tile_rows(inputs: int) -> int:
    """How many restored rows of w a tile holds."""
    return max(1, min(64, TILE // inputs // 2 * 2), min(4, MOST // inputs))


@small_kernel
def _multiplied(
    values: Any, block: int, size: int, address: int, inputs: int, x_at: int, y_at: int, first: int, last: int
) -> None:
    """y[first : last] of one row of x; without x, row `first` restored. A block has `size` bytes."""
    blocks = inputs // block
    w = octets(address, last * blocks * size)
    if x_at == 0:
        y = floats(y_at, inputs)
        for b in range(blocks):
            for i in range(0, block, WIDTH):
                store(y, b * block + i, values(w, (first * blocks + b) * size, i))
        return
    x, y, together = floats(x_at, inputs), floats(y_at, last), GROUP // block
    for o in range(first, last):
        A = spread(ZERO)
        for start in range(0, blocks, together):
            a = spread(ZERO)
            for b in range(start, min(start + together, blocks)):
                for i in range(0, block, WIDTH):
                    a = fma(values(w, (o * blocks + b) * size, i), load(x, b * block + i), a)
            A = plus(A, a)
        y[o] = total(A)


# One function for each format, written out: numba does not find on disk what is made of other functions. The
# version, which is not 0, is how it is found.


def _q8_0(version: int) -> Any:
    def q8_0(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q8_0, 32, 34, w, inputs, x, y, first, last)

    return q8_0


def _q4_0(version: int) -> Any:
    def q4_0(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q4_0, 32, 18, w, inputs, x, y, first, last)

    return q4_0


def _q4_1(version: int) -> Any:
    def q4_1(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q4_1, 32, 20, w, inputs, x, y, first, last)

    return q4_1


def _q4_k(version: int) -> Any:
    def q4_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q4_k, 256, 144, w, inputs, x, y, first, last)

    return q4_k


def _q5_k(version: int) -> Any:
    def q5_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q5_k, 256, 176, w, inputs, x, y, first, last)

    return q5_k


def _q6_k(version: int) -> Any:
    def q6_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(ggml.q6_k, 256, 210, w, inputs, x, y, first, last)

    return q6_k


def _f16(version: int) -> Any:
    def f16(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(half_precision.f16, HALVES, 2 * HALVES, w, inputs, x, y, first, last)

    return f16


def _bf16(version: int) -> Any:
    def bf16(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(half_precision.bf16, HALVES, 2 * HALVES, w, inputs, x, y, first, last)

    return bf16


MADE: dict[Format, Callable[[int], Any]] = {
    F16: _f16,
    BF16: _bf16,
    Q8_0: _q8_0,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
}
"""How each format that is multiplied by its address is compiled."""


@cache
def compiled(kind: Format) -> Any:
    """The compiled function of a format: its `address` is what a table of weights holds."""
    with listening(Announcement(f"products with weights in {kind.name}")):
        return callback(ENTRY, MADE[kind](version(Path(__file__).parents[1])))


@kernel
def product(
    function: int, w: int, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int
) -> None:
    """`dense.product` for w that begins at an address, in a format that `function` is compiled for."""
    if rows == 1:
        call(function, w, inputs, x.ctypes.data, out.y.ctypes.data + 4 * out.shift, first, last)
        return
    size = tile_rows(inputs)
    tile = floats(reserve(size * inputs), size * inputs)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            call(function, w, inputs, 0, tile.ctypes.data + 4 * (o - start) * inputs, o, o + 1)
        dense.product(tile, inputs, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start)
