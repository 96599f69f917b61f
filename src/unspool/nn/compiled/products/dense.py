"""Products with float32 weights: as they lie, or a tile of packed ones that was restored.

    y_no = Σ_i w_oi · x_ni

Whatever the number of rows, the sum of each is made in one order: lanes within groups of GROUP inputs, then
groups one after another (`lanes`), then what is behind the last whole lanes.
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.dot_tile import Singles
from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, fused
from unspool.nn.compiled.products.row_tiles import Outputs, product_of

GROUP = 256
"""Inputs that are added up before they join the sum: few enough that several such sums are made at once."""

_even = product_of(Singles(GROUP))


@kernel
def _left_over(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add what is behind the last whole lanes, one by one."""
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            found = out.y[at]
            for i in range(inputs // WIDTH * WIDTH, inputs):
                found = fused(w[o * inputs + i], x[n * inputs + i], found)
            out.y[at] = found


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x with the rows of w from `first` to `last` − 1."""
    _even(w, inputs, inputs // WIDTH * WIDTH, x, inputs, rows, out, first, last)
    if inputs % WIDTH:
        _left_over(w, inputs, x, rows, out, first, last)
