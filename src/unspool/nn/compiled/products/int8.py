"""Weights as whole numbers of eight bits, in groups of 64 inputs with a scale: the format of our own.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

A group is 68 bytes: s in float32, then q from −127 to 127; a row's last group is filled up with zeros. The
scale is multiplied once for each group, which spares a multiplication for each number of a single row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, spread, store, total
from unspool.kernels.packed import numbers, signed_codes, single
from unspool.kernels.scratch import reserve
from unspool.nn.compiled.products import dense
from unspool.nn.compiled.products.dense import Dense, Outputs
from unspool.nn.compiled.products.packed import tile_rows

GROUP, BYTES, BEGIN = 64, 68, 4
"""Numbers of a group, its bytes, and where its numbers begin among them."""
ZERO = np.float32(0)
GROUP_SIZE: Any = np.int64(GROUP)


@kernel
def _number(w: Any, at: int, i: int) -> Any:
    """q_i of a row that begins at byte `at`."""
    q = np.float32(w[at + i // GROUP * BYTES + BEGIN + i % GROUP])
    return q - np.float32(256) if q > np.float32(127) else q


@kernel
def _one(w: Any, inputs: int, x: Any, out: Outputs, first: int, last: int) -> None:
    groups, even = (inputs + GROUP - 1) // GROUP, inputs // WIDTH * WIDTH
    for o in range(first, last):
        row = o * groups * BYTES
        A = spread(ZERO)
        for g in range(inputs // GROUP):
            a = spread(ZERO)
            at = row + g * BYTES
            for i in range(0, GROUP, WIDTH):
                a = fma(numbers(signed_codes(w, at + BEGIN + i)), load(x, g * GROUP + i), a)
            A = fma(a, spread(single(w, at)), A)
        if inputs % GROUP:
            a = spread(ZERO)
            at, start = row + (groups - 1) * BYTES, (groups - 1) * GROUP
            for i in range(start, even, WIDTH):
                a = fma(numbers(signed_codes(w, at + BEGIN + i - start)), load(x, i), a)
            A = fma(a, spread(single(w, at)), A) if even > start else A
        found = total(A)
        for i in range(even, inputs):
            scale = single(w, row + i // GROUP * BYTES)
            found = fused(_number(w, row, i) * scale, x[i], found)
        out.y[out.shift + o] = found


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """`dense.product` for w in this format."""
    if rows == 1:
        _one(w, inputs, x, out, first, last)
        return
    groups = (inputs + GROUP - 1) // GROUP
    size = tile_rows(inputs)
    tile = carray(reserve(size * inputs), size * inputs, np.float32)
    scales = carray(reserve(size * groups), size * groups, np.float32)
    m = Dense(tile, inputs, scales, groups, GROUP_SIZE)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            row, to = o * groups * BYTES, (o - start) * inputs
            for g in range(groups):
                scales[(o - start) * groups + g] = single(w, row + g * BYTES)
            for g in range(inputs // GROUP):
                for i in range(0, GROUP, WIDTH):
                    q = signed_codes(w, row + g * BYTES + BEGIN + i)
                    store(tile, to + g * GROUP + i, numbers(q))
            for i in range(inputs // GROUP * GROUP, inputs):
                tile[to + i] = _number(w, row, i)
        dense.product(m, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start)


@kernel
def row(w: Any, at: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row, from byte `at` on."""
    for i in range(inputs):
        y[to + i] = _number(w, at, i) * single(w, at + i // GROUP * BYTES)
