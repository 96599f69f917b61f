"""Matrix products with weights of any format.

    y_NO = x_NI · W_OIᵀ + b_O

W is a part of the weight table: one matrix, or up to three stacked matrices of different formats.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from unspool.engine import dense_matmul, interleaved_matmul, packed_matmul
from unspool.engine.dense_matmul import Outputs, chunk_size
from unspool.engine.kernel import INT64_ZERO, call_address, floats_at, inline_kernel, kernel
from unspool.engine.simd import add_floats
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_formats import FIRST_INTERLEAVED, FLOAT32
from unspool.engine.weight_table import BIAS, END, FORMAT, FUNCTION, INPUTS, OUTPUTS, PIECE, PIECES, WEIGHT


class Inputs(NamedTuple):
    """Rows of x, and the same rows prepared for interleaved weights, if there are any."""

    x: Any
    prepared: Any


@inline_kernel
def needs_prepared_inputs(part: Any) -> bool:
    """True if rows of x must be prepared for these weights."""
    return (  # type: ignore[no-any-return]
        part[FORMAT] >= FIRST_INTERLEAVED
        or part[PIECE + FORMAT] >= FIRST_INTERLEAVED
        or part[2 * PIECE + FORMAT] >= FIRST_INTERLEAVED
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
        elif kind >= FIRST_INTERLEAVED:
            x_at, y_at = x.prepared.ctypes.data, y.ctypes.data + 4 * out.shift
            call_address(part[at + FUNCTION], address, inputs, x_at, rows, y_at, outputs, low, high)
        else:
            packed_matmul.product(part[at + FUNCTION], address, inputs, x.x, rows, out, low, high)
    if part[BIAS]:
        bias = floats_at(part[BIAS], outputs)
        for n in range(rows):
            add_floats(bias, first, y, n * outputs + first, last - first)


@chunk_phase
def _prepare_rows(n: int, part: Any, x: Inputs) -> None:
    interleaved_matmul.prepare(x.x, part[INPUTS], n, x.prepared)


@chunk_phase
def _multiply_chunks(chunk: int, part: Any, x: Inputs, rows: int, y: Any, size: int) -> None:
    product(part, x, rows, y, chunk * size, min(part[OUTPUTS], (chunk + 1) * size))


@kernel
def matmul_phase(part: Any, x: Inputs, rows: int, y: Any, queue: Any, phase: int, threads: int) -> int:
    """y = x · Wᵀ + b; for interleaved weights, a phase before it prepares the rows of x."""
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
    else:
        call_address(part[FUNCTION], address, inputs, 0, 1, y.ctypes.data + 4 * to, 0, row, row + 1)
