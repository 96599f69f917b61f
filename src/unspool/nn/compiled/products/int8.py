"""Weights as whole numbers of eight bits, in groups of 64 inputs with a scale: the format of our own.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

A group is 68 bytes: s in float32, then q from −127 to 127; a row's last group is filled up with zeros. The
scale is multiplied once for each group, which spares a multiplication for each number of a single row. The
rows of w and x meet as in `dense`; inputs behind the last whole group join one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.kernel import kernel, small_kernel
from unspool.kernels.lanes import FLOAT, FLOATS, INTS, fused, fused_lanes, spread_lanes
from unspool.kernels.packed_lanes import BYTES_OF_LANES, single
from unspool.nn.compiled.products.row_tiles import Outputs, product_of

GROUP, BYTES, BEGIN = 64, 68, 4
"""Numbers of a group, its bytes, and where its numbers begin among them."""


class Int8Groups:
    """The layout of the format, for `row_tiles`."""

    group: int | None = GROUP
    whole_groups = True

    def begin(self, builder: Any, row: Any, start: Any) -> Any:
        """A group has BYTES bytes."""
        kind = start.type
        return builder.add(row, builder.mul(builder.udiv(start, kind(GROUP)), kind(BYTES)))

    def lanes(self, builder: Any, data: Any, begin: Any, i: Any) -> Any:
        """Its whole numbers, as float32."""
        where = builder.gep(data, [builder.add(builder.add(begin, begin.type(BEGIN)), i)])
        codes = builder.load(builder.bitcast(where, BYTES_OF_LANES.as_pointer()))
        codes.align = 1
        return builder.sitofp(builder.sext(codes, INTS), FLOATS)

    def joined(self, builder: Any, data: Any, begin: Any, part: Any, whole: Any) -> Any:
        """whole + s · part."""
        scale = builder.load(builder.bitcast(builder.gep(data, [begin]), FLOAT.as_pointer()))
        scale.align = 1
        return fused_lanes(builder, part, spread_lanes(builder, scale), whole)

    @staticmethod
    @small_kernel
    def end(row: int, length: int) -> int:
        """Behind its last group."""
        return row + length // GROUP * BYTES


_whole_groups = product_of(Int8Groups())


@small_kernel
def row_bytes(inputs: int) -> int:
    """Bytes of a row."""
    return (inputs + GROUP - 1) // GROUP * BYTES


@kernel
def _number(w: Any, row: int, i: int) -> Any:
    """w_i of the row that begins at byte `row`."""
    at = row + i // GROUP * BYTES
    q = np.float32(w[at + BEGIN + i % GROUP])
    return (q - np.float32(256) if q > np.float32(127) else q) * single(w, at)


@kernel
def _left_over(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """Add what is behind the last whole group, one by one."""
    size = row_bytes(inputs)
    for n in range(rows):
        for o in range(first, last):
            at = n * out.width + out.shift + o
            found = out.y[at]
            for i in range(inputs // GROUP * GROUP, inputs):
                found = fused(_number(w, o * size, i), x[n * inputs + i], found)
            out.y[at] = found


@kernel
def product(w: Any, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """`dense.product` for w in this format."""
    _whole_groups(w, row_bytes(inputs), inputs // GROUP * GROUP, x, inputs, rows, out, first, last)
    if inputs % GROUP:
        _left_over(w, inputs, x, rows, out, first, last)


@kernel
def row(w: Any, at: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row, from byte `at` on."""
    for i in range(inputs):
        y[to + i] = _number(w, at, i)
