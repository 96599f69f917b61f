"""Matrix products, with weights in whatever format they lie.

    y_NO = x_NI · W_OIᵀ + b_O

W is one matrix, or up to three stacked ones with formats of their own (`parts`). Where one of them has whole
numbers, rows of x must be made ready first (`prepare`).
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.addresses import floats, octets
from unspool.kernels.kernel import NOUGHT, kernel, small_kernel
from unspool.kernels.pointers import call
from unspool.kernels.vectors import add
from unspool.nn.compiled.parts import (
    BIAS,
    END,
    FORMAT,
    FUNCTION,
    INPUTS,
    OUTPUTS,
    PIECE,
    PIECES,
    WEIGHT,
)
from unspool.nn.compiled.products import dense, int8, packed_product
from unspool.nn.compiled.products.int8 import Inputs
from unspool.nn.compiled.products.row_tiles import Outputs
from unspool.nn.stored.formats import FLOAT32, NUMBER_INT8


@small_kernel
def takes_ready(part: Any) -> bool:
    """Whether a row of x must be made ready for these weights."""
    return (  # type: ignore[no-any-return]
        part[FORMAT] == NUMBER_INT8
        or part[PIECE + FORMAT] == NUMBER_INT8
        or part[2 * PIECE + FORMAT] == NUMBER_INT8
    )


@kernel
def prepare(part: Any, inputs: Inputs, n: int) -> None:
    """Make row n ready."""
    int8.prepare(inputs.x, part[INPUTS], n, inputs.ready)


@kernel
def product(part: Any, x: Inputs, rows: int, y: Any, first: int, last: int) -> None:
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
            dense.product(floats(address, height * inputs), inputs, x.x, rows, out, low, high)
        elif kind == NUMBER_INT8:
            w = octets(address, int8.total_bytes(height, inputs))
            int8.product(w, inputs, x.ready, rows, out, low, high)
        else:
            packed_product.product(part[at + FUNCTION], address, inputs, x.x, rows, out, low, high)
    if part[BIAS]:
        bias = floats(part[BIAS], outputs)
        for n in range(rows):
            add(bias, first, y, n * outputs + first, last - first)


@kernel
def gather(part: Any, row: int, y: Any, n: int) -> None:
    """Row `row` of the matrix, which is one piece, into row n of y: a token's embedding."""
    kind, address, inputs = part[FORMAT], part[WEIGHT], part[INPUTS]
    to = n * inputs
    if kind == FLOAT32:
        w = floats(address, part[OUTPUTS] * inputs)
        for i in range(inputs):
            y[to + i] = w[row * inputs + i]
    elif kind == NUMBER_INT8:
        int8.row(octets(address, int8.total_bytes(part[OUTPUTS], inputs)), row, inputs, y, to)
    else:
        call(part[FUNCTION], address, inputs, 0, y.ctypes.data + 4 * to, row, row + 1)
