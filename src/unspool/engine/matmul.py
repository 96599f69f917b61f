"""Matrix products with weights of any format.

    y_NO = x_NI · W_OIᵀ + b_O

W is a part of the weight table: one matrix, or up to three stacked matrices of different formats.
"""

from __future__ import annotations

from typing import Any

from unspool.engine import dense_matmul, int8_matmul, packed_matmul
from unspool.engine.dense_matmul import Outputs, chunk_size
from unspool.engine.int8_matmul import Inputs
from unspool.engine.kernel import INT64_ZERO, bytes_at, call_address, floats_at, inline_kernel, kernel
from unspool.engine.simd import add_floats
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_formats import FLOAT32, NUMBER_INT8
from unspool.engine.weight_table import BIAS, END, FORMAT, FUNCTION, INPUTS, OUTPUTS, PIECE, PIECES, WEIGHT


@inline_kernel
def needs_prepared_inputs(part: Any) -> bool:
    """True if rows of x must be prepared for these weights."""
    return (  # type: ignore[no-any-return]
        part[FORMAT] == NUMBER_INT8
        or part[PIECE + FORMAT] == NUMBER_INT8
        or part[2 * PIECE + FORMAT] == NUMBER_INT8
    )


@kernel
def product(part: Any, x: Inputs, rows: int, y: Any, first: int, last: int) -> None:
    """The outputs from `first` to `last` − 1 of every row, with their biases."""
    outputs, inputs = part[OUTPUTS], part[INPUTS]
    begin = INT64_ZERO
    for at in range(0, PIECES * PIECE, PIECE):
        kind, address, end = part[at + FORMAT], part[at + WEIGHT], part[at + END]
        low, high = max(first, begin) - begin, min(last, end) - begin
        height, out = end - begin, Outputs(y, outputs, begin)
        begin = end
        if low >= high:
            continue
        if kind == FLOAT32:
            dense_matmul.product(floats_at(address, height * inputs), inputs, x.x, rows, out, low, high)
        elif kind == NUMBER_INT8:
            w = bytes_at(address, int8_matmul.total_bytes(height, inputs))
            int8_matmul.product(w, inputs, x.prepared, rows, out, low, high)
        else:
            packed_matmul.product(part[at + FUNCTION], address, inputs, x.x, rows, out, low, high)
    if part[BIAS]:
        bias = floats_at(part[BIAS], outputs)
        for n in range(rows):
            add_floats(bias, first, y, n * outputs + first, last - first)


@chunk_phase
def _prepare_rows(n: int, part: Any, x: Inputs) -> None:
    int8_matmul.prepare(x.x, part[INPUTS], n, x.prepared)


@chunk_phase
def _multiply_chunks(chunk: int, part: Any, x: Inputs, rows: int, y: Any, size: int) -> None:
    product(part, x, rows, y, chunk * size, min(part[OUTPUTS], (chunk + 1) * size))


@kernel
def matmul_phase(part: Any, x: Inputs, rows: int, y: Any, queue: Any, phase: int, threads: int) -> int:
    """y = x · Wᵀ + b; for INT8 weights, a phase before it prepares the rows of x."""
    if needs_prepared_inputs(part):
        phase = _prepare_rows(queue, phase, rows, part, x)
    size = chunk_size(part[OUTPUTS], part[INPUTS], rows, threads)
    chunks = (part[OUTPUTS] + size - 1) // size
    return _multiply_chunks(queue, phase, chunks, part, x, rows, y, size)


@kernel
def embed_row(part: Any, row: int, y: Any, n: int) -> None:
    """Copy row `row` of an unstacked matrix to row n of y: a token's embedding."""
    kind, address, inputs = part[FORMAT], part[WEIGHT], part[INPUTS]
    to = n * inputs
    if kind == FLOAT32:
        w = floats_at(address, part[OUTPUTS] * inputs)
        for i in range(inputs):
            y[to + i] = w[row * inputs + i]
    elif kind == NUMBER_INT8:
        int8_matmul.restore_row(
            bytes_at(address, int8_matmul.total_bytes(part[OUTPUTS], inputs)), row, inputs, y, to
        )
    else:
        call_address(part[FUNCTION], address, inputs, 0, y.ctypes.data + 4 * to, row, row + 1)
