"""Matrix products, one file for each format that weights may lie in.

y_NO = x_NI · W_OIᵀ + b_O
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.addresses import floats
from unspool.kernels.kernel import kernel
from unspool.nn.compiled.parts import BIAS, INPUTS, OUTPUTS, WEIGHT
from unspool.nn.compiled.products import float32


@kernel
def product(part: Any, x: Any, rows: int, y: Any, first: int, last: int) -> None:
    """The outputs from `first` to `last` − 1 of every row, with their biases."""
    outputs, inputs = part[OUTPUTS], part[INPUTS]
    float32.product(floats(part[WEIGHT], outputs * inputs), inputs, x, rows, y, outputs, first, last)
    if part[BIAS]:
        bias = floats(part[BIAS], outputs)
        for n in range(rows):
            for o in range(first, last):
                y[n * outputs + o] += bias[o]


@kernel
def gather(part: Any, row: int, y: Any, n: int) -> None:
    """Row `row` of the matrix into row n of y: a token's embedding."""
    inputs = part[INPUTS]
    w = floats(part[WEIGHT], part[OUTPUTS] * inputs)
    for i in range(inputs):
        y[n * inputs + i] = w[row * inputs + i]
