"""Matrix products, with weights in whatever format they lie.

    y_NO = x_NI · W_OIᵀ + b_O

W is one matrix, or up to three stacked ones with formats of their own (`parts`). Where one of them has whole
numbers, rows of x must be made ready first (`prepare`).
"""

from __future__ import annotations

from typing import Any

from unspool.engine import dense_matmul, int8_matmul, packed_matmul
from unspool.engine.dense_matmul import Outputs
from unspool.engine.int8_matmul import Inputs
from unspool.engine.kernel import NOUGHT, call, kernel, small_kernel
from unspool.engine.memory import floats, octets
from unspool.engine.simd import add
from unspool.engine.weight_formats import FLOAT32, NUMBER_INT8
from unspool.engine.weight_table import BIAS, END, FORMAT, FUNCTION, INPUTS, OUTPUTS, PIECE, PIECES, WEIGHT


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
    int8_matmul.prepare(inputs.x, part[INPUTS], n, inputs.ready)


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
            dense_matmul.product(floats(address, height * inputs), inputs, x.x, rows, out, low, high)
        elif kind == NUMBER_INT8:
            w = octets(address, int8_matmul.total_bytes(height, inputs))
            int8_matmul.product(w, inputs, x.ready, rows, out, low, high)
        else:
            packed_matmul.product(part[at + FUNCTION], address, inputs, x.x, rows, out, low, high)
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
        int8_matmul.row(octets(address, int8_matmul.total_bytes(part[OUTPUTS], inputs)), row, inputs, y, to)
    else:
        call(part[FUNCTION], address, inputs, 0, y.ctypes.data + 4 * to, row, row + 1)
