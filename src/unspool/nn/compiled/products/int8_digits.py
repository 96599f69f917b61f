"""Products of bytes: rows of x are made digits, and all sums of a group are exact.

    y_no = Σ_g s_og · 2^(e_ng − 21) · Σ_d 2^(8d) Σ_{i in g} q_oi · a_nid

for processors that multiply bytes (`byte_products`): there several rows take half the time that they take by
`int8_floats`. w's bytes count from 0, which adds 128 Σ_i a_nid to every sum; each begins so much lower.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from unspool.kernels.byte_products import DIGITS, RECORD, SCALE, SHIFTS, WORDS, byte_products, digits
from unspool.kernels.lanes import FLOAT, FLOATS, INT, INTS, WIDTH, fetch, fused_lanes, spread_lanes, whole
from unspool.nn.compiled.products.int8_tiles import BEGIN, WORD, at_index

UNROLLED = 4
"""Words of w that are multiplied between two looks at the loop's end."""


class ByDigits:
    """A way of `int8_tiles`, where a register has a lane for each of the rows side by side."""

    record, at_once = RECORD, 4
    ready = staticmethod(digits)
    """A kernel: the record of x[at …], which has all numbers of a group."""

    def add(
        self, builder: Any, w: Any, at: Any, ahead: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """Three sums for each row of x, and those of them all joined."""
        kind, sums = at.type, [[cgutils.alloca_once(builder, INTS) for _ in range(DIGITS)] for _ in records]
        for record, places in zip(records, sums, strict=True):
            for d, place in enumerate(places):
                begin = at_index(builder, x, builder.add(record, kind(SHIFTS + d)), INT)
                builder.store(spread_lanes(builder, begin), place)
        with cgutils.for_range_slice(builder, kind(0), kind(WORDS), kind(UNROLLED), kind) as (first, _):
            for k in (builder.add(first, kind(more)) for more in range(UNROLLED)):
                if ahead is not None:
                    fetch(builder, builder.gep(w, [builder.add(_word(builder, at, k), ahead)]))
                codes = at_index(builder, w, _word(builder, at, k), INTS)
                for record, places in zip(records, sums, strict=True):
                    for d, place in enumerate(places):
                        begin = builder.add(builder.add(record, kind(d * WORDS)), k)
                        four = spread_lanes(builder, at_index(builder, x, begin, INT))
                        builder.store(byte_products(builder, builder.load(place), codes, four), place)
        scales = at_index(builder, w, at, FLOATS)
        for record, places, (total,) in zip(records, sums, totals, strict=True):
            own = at_index(builder, x, builder.add(record, kind(SCALE)), FLOAT)
            scale = builder.fmul(scales, spread_lanes(builder, own))
            found = _joined(builder, *(builder.load(place) for place in places))
            builder.store(fused_lanes(builder, found, scale, builder.load(total)), total)


def _word(builder: Any, at: Any, k: Any) -> Any:
    kind = at.type
    return builder.add(builder.add(at, kind(BEGIN)), builder.mul(k, kind(WORD)))


def _joined(builder: Any, low: Any, middle: Any, high: Any) -> Any:
    """low + 2⁸ middle + 2¹⁶ high as float32: the latter two have less than 2²⁹ together."""
    above = builder.sitofp(builder.add(builder.shl(high, whole(8)), middle), FLOATS)
    return fused_lanes(builder, above, ir.Constant(FLOATS, [256.0] * WIDTH), builder.sitofp(low, FLOATS))
