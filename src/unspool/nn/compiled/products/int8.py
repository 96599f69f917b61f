"""Weights as whole numbers of eight bits, in groups of 64 inputs with a scale: the format of our own.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

16 rows of w lie side by side (`stored.formats`) and meet up to eight of x at a time (`int8_tiles`), by exact
sums of products of bytes where the processor has them, else by products of float32. Either way the sums of a
row are the same bits in any company. A product begins with rows of x that are made `ready`, once for all
threads; of weights that lie in several formats, the others read x itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspool.kernels.addresses import floats
from unspool.kernels.byte_products import BYTE_PRODUCTS, MIDDLE
from unspool.kernels.kernel import NOUGHT, kernel, small_kernel
from unspool.kernels.packed_lanes import single
from unspool.kernels.stack_memory import reserve
from unspool.nn.compiled.products.int8_digits import ByDigits
from unspool.nn.compiled.products.int8_floats import ByFloats
from unspool.nn.compiled.products.int8_tiles import BEGIN, BYTES, GROUP, SIDE, WORD, tile_of
from unspool.nn.compiled.products.row_tiles import Outputs

AHEAD = 2
"""Groups of w that are asked for before they are wanted."""
MOST = 8
"""Rows of x that meet w at a time."""
WAY = ByDigits() if BYTE_PRODUCTS else ByFloats()
RECORD, _ready = WAY.record, WAY.ready
_eight, _four, _three, _two, _one = (tile_of(R, WAY) for R in (MOST, 4, 3, 2, 1))
ZERO = np.float32(0)
A_GROUP: Any = np.int64(GROUP)
A_TILE: Any = np.int64(MOST * SIDE)
"""Numbers of memory to reserve; no constants (`stack_memory`)."""


class Inputs(NamedTuple):
    """Rows of x, and the same rows ready to be multiplied with whole numbers, where there are any."""

    x: Any
    ready: Any


@small_kernel
def groups_of(inputs: int) -> int:
    """Groups of a row, the last of which may be filled up."""
    return (inputs + GROUP - 1) // GROUP


@small_kernel
def total_bytes(outputs: int, inputs: int) -> int:
    """Bytes of a matrix."""
    return (outputs + SIDE - 1) // SIDE * groups_of(inputs) * BYTES


@kernel
def prepare(x: Any, inputs: int, n: int, ready: Any) -> None:
    """Row n of x, made ready."""
    groups, at = groups_of(inputs), n * inputs
    to = n * groups * RECORD
    for g in range(inputs // GROUP):
        _ready(x, at + g * GROUP, ready, to + g * RECORD)
    left = inputs % GROUP
    if left:
        last = floats(reserve(A_GROUP), GROUP)
        for i in range(GROUP):
            last[i] = x[at + inputs - left + i] if i < left else ZERO
        _ready(last, NOUGHT, ready, to + (groups - 1) * RECORD)


@kernel
def _meet(w: Any, at: int, ready: Any, n: int, count: int, groups: int, y: Any, to: int, below: int) -> None:
    """`count` rows of x, from the n-th on, with the rows of w whose first group begins at byte `at`."""
    between = groups * RECORD
    ahead = groups * BYTES if n else AHEAD * BYTES
    if count == MOST:
        _eight(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 4:
        _four(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 3:
        _three(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 2:
        _two(w, at, ahead, ready, n * between, between, groups, y, to, below)
    else:
        _one(w, at, ahead, ready, n * between, between, groups, y, to, below)


@kernel
def product(w: Any, inputs: int, ready: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x, which are ready, with the rows of w from `first` to `last` − 1."""
    groups = groups_of(inputs)
    spare = floats(reserve(A_TILE), MOST * SIDE)
    for begin in range(first // SIDE * SIDE, last, SIDE):
        at, low, high = begin // SIDE * groups * BYTES, max(first, begin), min(last, begin + SIDE)
        n = NOUGHT
        while n < rows:
            count = MOST if rows - n >= MOST else min(4, rows - n)
            to = n * out.width + out.shift
            if high - low == SIDE:
                _meet(w, at, ready, n, count, groups, out.y, to + begin, out.width)
            else:
                _meet(w, at, ready, n, count, groups, spare, NOUGHT, SIDE)
                for r in range(count):
                    for o in range(low, high):
                        out.y[to + r * out.width + o] = spare[r * SIDE + o - begin]
            n += count


@kernel
def row(w: Any, number: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row."""
    side = number % SIDE
    for i in range(inputs):
        at = (number // SIDE * groups_of(inputs) + i // GROUP) * BYTES
        byte = w[at + BEGIN + i % GROUP // 4 * WORD + 4 * side + i % 4]
        y[to + i] = (np.float32(byte) - np.float32(MIDDLE)) * single(w, at + 4 * side)
