"""Products with packed weights, in place: what all formats have in common.

    y_no = Σ_i w_oi · x_ni,   w_oi restored from its block when it is wanted

A format gives `values(w, at, i)`: lanes of restored numbers, from number i on, of the block whose bytes
begin at `at`. One row of x meets them one after another (`one_of`). For several rows, a few rows of w are
restored (`row_of`) into a tile that stays in the cache, and `dense` multiplies those. The order of every sum
is the same both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, fma, load, plus, spread, store, total
from unspool.kernels.scratch import MOST
from unspool.nn.compiled.products.dense import GROUP, Outputs

TILE = 8192
"""Restored numbers that stay in the nearest cache, about."""
ZERO = np.float32(0)

Values = Callable[[Any, int, int], Any]


@kernel
def tile_rows(inputs: int) -> int:
    """How many restored rows of w a tile holds."""
    return max(1, min(64, TILE // inputs // 2 * 2), min(4, MOST // inputs))


def row_of(values: Values, block: int, block_bytes: int) -> Callable[..., Any]:
    """y[to : to + inputs] = a restored row, from byte `at` on."""

    @kernel
    def row(w: Any, at: int, inputs: int, y: Any, to: int) -> None:
        for b in range(inputs // block):
            for i in range(0, block, WIDTH):
                store(y, to + b * block + i, values(w, at + b * block_bytes, i))

    return row


def one_of(values: Values, block: int, block_bytes: int) -> Callable[..., Any]:
    """`dense.product` of one row of x, for w in this format, whose rows are whole blocks."""
    blocks_of_a_group = GROUP // block

    @kernel
    def one(w: Any, inputs: int, x: Any, out: Outputs, first: int, last: int) -> None:
        blocks = inputs // block
        for o in range(first, last):
            A = spread(ZERO)
            at = o * blocks * block_bytes
            for start in range(0, blocks, blocks_of_a_group):
                a = spread(ZERO)
                for b in range(start, min(start + blocks_of_a_group, blocks)):
                    for i in range(0, block, WIDTH):
                        a = fma(values(w, at + b * block_bytes, i), load(x, b * block + i), a)
                A = plus(a, A)
            out.y[out.shift + o] = total(A)

    return one
