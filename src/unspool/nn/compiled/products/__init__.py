"""Matrix products, with weights in whatever format they lie.

    y_NO = x_NI · W_OIᵀ + b_O

W is one matrix, or up to three stacked ones with formats of their own (`parts`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from unspool.kernels.addresses import floats, octets
from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.scratch import reserve
from unspool.nn.compiled.parts import BIAS, END, FORMAT, INPUTS, OUTPUTS, PIECE, PIECES, WEIGHT
from unspool.nn.compiled.products import dense, ggml, int8
from unspool.nn.compiled.products.dense import Outputs
from unspool.nn.compiled.products.half_precision import bf16, f16
from unspool.nn.compiled.products.packed import one_of, row_of, tile_rows
from unspool.nn.stored.formats import (
    FLOAT32,
    FORMATS,
    NUMBER_BF16,
    NUMBER_F16,
    NUMBER_INT8,
    NUMBER_Q4_0,
    NUMBER_Q4_1,
    NUMBER_Q4_K,
    NUMBER_Q5_K,
    NUMBER_Q6_K,
    NUMBER_Q8_0,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
)

HALVES = 32
"""Numbers in half precision that are taken for a block."""

BLOCKS = np.array([kind.block for kind in FORMATS])
BLOCK_BYTES = np.array([kind.block_bytes for kind in FORMATS])

_f16_row, _f16_one = row_of(f16, HALVES, 2 * HALVES), one_of(f16, HALVES, 2 * HALVES)
_bf16_row, _bf16_one = row_of(bf16, HALVES, 2 * HALVES), one_of(bf16, HALVES, 2 * HALVES)
_q8_0_row, _q8_0_one = row_of(ggml.q8_0, *Q8_0.sizes), one_of(ggml.q8_0, *Q8_0.sizes)
_q4_0_row, _q4_0_one = row_of(ggml.q4_0, *Q4_0.sizes), one_of(ggml.q4_0, *Q4_0.sizes)
_q4_1_row, _q4_1_one = row_of(ggml.q4_1, *Q4_1.sizes), one_of(ggml.q4_1, *Q4_1.sizes)
_q4_k_row, _q4_k_one = row_of(ggml.q4_k, *Q4_K.sizes), one_of(ggml.q4_k, *Q4_K.sizes)
_q5_k_row, _q5_k_one = row_of(ggml.q5_k, *Q5_K.sizes), one_of(ggml.q5_k, *Q5_K.sizes)
_q6_k_row, _q6_k_one = row_of(ggml.q6_k, *Q6_K.sizes), one_of(ggml.q6_k, *Q6_K.sizes)


@kernel
def _row_bytes(kind: int, inputs: int) -> int:
    return (inputs + BLOCKS[kind] - 1) // BLOCKS[kind] * BLOCK_BYTES[kind]  # type: ignore[no-any-return]


@kernel
def _row(kind: int, w: Any, at: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row, from byte `at` on."""
    if kind == NUMBER_INT8:
        int8.row(w, at, inputs, y, to)
    elif kind == NUMBER_F16:
        _f16_row(w, at, inputs, y, to)
    elif kind == NUMBER_BF16:
        _bf16_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q8_0:
        _q8_0_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q4_0:
        _q4_0_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q4_1:
        _q4_1_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q4_K:
        _q4_k_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q5_K:
        _q5_k_row(w, at, inputs, y, to)
    elif kind == NUMBER_Q6_K:
        _q6_k_row(w, at, inputs, y, to)


@kernel
def _tiled(kind: int, w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """The product of several rows of x, with some restored rows of w at a time."""
    size, row_bytes = tile_rows(inputs), _row_bytes(kind, inputs)
    tile = carray(reserve(size * inputs), size * inputs, np.float32)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            _row(kind, w, o * row_bytes, inputs, tile, (o - start) * inputs)
        dense.product(tile, inputs, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start)


@kernel
def product(part: Any, x: Any, rows: int, y: Any, first: int, last: int) -> None:
    """The outputs from `first` to `last` − 1 of every row, with their biases."""
    outputs, inputs = part[OUTPUTS], part[INPUTS]
    begin = NOUGHT
    for at in range(0, PIECES * PIECE, PIECE):
        kind, address, end = part[at + FORMAT], part[at + WEIGHT], part[at + END]
        low, high = max(first, begin) - begin, min(last, end) - begin
        height, out = end - begin, Outputs(y, outputs, begin)
        begin = end
        if low >= high:
            continue
        if kind == FLOAT32:
            dense.product(floats(address, height * inputs), inputs, x, rows, out, low, high)
            continue
        w = octets(address, height * _row_bytes(kind, inputs))
        if kind == NUMBER_INT8:
            int8.product(w, inputs, x, rows, out, low, high)
        elif rows > 1:
            _tiled(kind, w, inputs, x, rows, out, low, high)
        elif kind == NUMBER_F16:
            _f16_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_BF16:
            _bf16_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q8_0:
            _q8_0_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q4_0:
            _q4_0_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q4_1:
            _q4_1_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q4_K:
            _q4_k_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q5_K:
            _q5_k_one(w, inputs, x, out, low, high)
        elif kind == NUMBER_Q6_K:
            _q6_k_one(w, inputs, x, out, low, high)
    if part[BIAS]:
        bias = floats(part[BIAS], outputs)
        for n in range(rows):
            for o in range(first, last):
                y[n * outputs + o] += bias[o]


@kernel
def gather(part: Any, row: int, y: Any, n: int) -> None:
    """Row `row` of the matrix, which is one piece, into row n of y: a token's embedding."""
    kind, inputs = part[FORMAT], part[INPUTS]
    to = n * inputs
    if kind == FLOAT32:
        w = floats(part[WEIGHT], part[OUTPUTS] * inputs)
        for i in range(inputs):
            y[to + i] = w[row * inputs + i]
    else:
        size = _row_bytes(kind, inputs)
        _row(kind, octets(part[WEIGHT], part[OUTPUTS] * size), row * size, inputs, y, to)
