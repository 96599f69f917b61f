"""Weights as whole numbers of eight bits, in groups of 64 inputs with a scale: the format of our own.

    w_oi = s_og · q_oi,     y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

16 rows of w lie side by side (`stored.formats`) and meet up to eight of x at a time (`int8_tiles`), by exact
sums of products of bytes where the processor has them, else by products of float32. Either way the sums of a
row are the same bits in any company. A product begins with rows of x that are made `ready`, once for all
threads; of weights that lie in several formats, the others read x itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.dense_matmul import Outputs
from unspool.engine.kernel import NOUGHT, kernel, operation, small_kernel
from unspool.engine.memory import floats, reserve
from unspool.engine.simd import (
    CHECKED,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    WIDTH,
    fetch,
    fused_lanes,
    load,
    spread_lanes,
    store,
    whole,
)
from unspool.engine.simd_bytes import (
    BYTE_PRODUCTS,
    DIGITS,
    MIDDLE,
    RECORD,
    SCALE,
    SHIFTS,
    WORDS,
    byte_products,
    digits,
    single,
)

SIDE, GROUP = 16, 64
"""Rows of w side by side, and inputs of a group."""
BYTES, BEGIN = 1088, 64
"""Of a group of all of these rows; its scales come first, and its numbers begin behind them."""
WORD = 4 * SIDE
"""Bytes of four inputs of all of these rows."""
REGISTERS = SIDE // WIDTH
"""That hold a sum of each."""


class Way(Protocol):
    """How a group is multiplied, in values of LLVM.

    How a few rows of x meet 16 rows of whole numbers of eight bits, which lie side by side
    (`stored.formats`).

    A register holds the sums of as many rows of w as it has lanes. Group by group of 64 inputs, each row's
    number is multiplied with those of all of them. What a group's sums are made of is a `Way`: rows of x are
    made ready for it first, a record of some words for every group.
    """

    record: int
    """Words of a group of x that is ready."""
    at_once: int
    """Rows of x that meet a group before the next ones do, which find it in the nearest cache."""

    def add(
        self, builder: Any, w: Any, at: Any, ahead: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """totals += s · q · x for w's group at byte `at` and the group of each row of x in its record.

        totals has places of registers: those of the first row of x, then the next one's. So many bytes
        `ahead`, if that is not None, are what memory should give soon.
        """


def at_index(builder: Any, data: Any, index: Any, kind: Any) -> Any:
    """What lies at data[index], as this kind of value."""
    found = builder.load(builder.bitcast(builder.gep(data, [index]), kind.as_pointer()))
    found.align = 4
    return found


def tile_of(R: int, way: Way) -> Callable[..., Any]:
    """The kernel for R rows of x.

    It is given w, where in it the first group begins, and how far ahead of that memory is asked for more; x,
    where its first row begins and how far apart rows are; how many groups there are; y, where in it the first
    sum belongs, and how far apart rows are there.
    """
    record = way.record

    @operation
    def _tile(
        _: Any,
        w: Any,
        at: Any,
        ahead: Any,
        x: Any,
        by: Any,
        between: Any,
        groups: Any,
        y: Any,
        to: Any,
        below: Any,
    ) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(which: int) -> Any:
                return context.make_array(signature.args[which])(context, builder, args[which]).data

            _, at, ahead, _, by, between, groups, _, to, below = args
            kind, nought = at.type, ir.Constant(FLOATS, [0.0] * WIDTH)
            rows = [builder.add(by, builder.mul(between, kind(r))) for r in range(R)]
            totals = [[cgutils.alloca_once_value(builder, nought) for _ in range(REGISTERS)] for _ in rows]
            with cgutils.for_range_slice(builder, kind(0), groups, kind(1), kind) as (g, _):
                records = [builder.add(row, builder.mul(g, kind(record))) for row in rows]
                begin = builder.add(at, builder.mul(g, kind(BYTES)))
                for r in range(0, R, way.at_once):
                    some, soon = slice(r, r + way.at_once), ahead if way.at_once < R and r == 0 else None
                    way.add(builder, data(0), begin, soon, data(3), records[some], totals[some])
            for r, registers in enumerate(totals):
                row = builder.add(to, builder.mul(below, kind(r)))
                for h, total in enumerate(registers):
                    where = builder.gep(data(7), [builder.add(row, kind(h * WIDTH))])
                    builder.store(builder.load(total), builder.bitcast(where, FLOATS.as_pointer()), align=4)
            return context.get_dummy_value()

        number = types.intp
        return types.void(w, number, number, x, number, number, number, y, number, number), build

    @small_kernel
    def tile(
        w: Any, at: int, ahead: int, x: Any, by: int, between: int, groups: int, y: Any, to: int, below: int
    ) -> None:
        if CHECKED and (
            min(at, by, to) < 0
            or at + groups * BYTES > w.size
            or by + (R - 1) * between + groups * record > x.size
            or to + (R - 1) * below + SIDE > y.size
        ):
            raise IndexError("a tile reaches outside an array")
        _tile(w, at, ahead, x, by, between, groups, y, to, below)

    return tile


UNROLLED = 4
"""Words of w that are multiplied between two looks at the loop's end."""


class ByDigits:
    """A way of `int8_tiles`, where a register has a lane for each of the rows side by side.

    Products of bytes: rows of x are made digits, and all sums of a group are exact.

        y_no = Σ_g s_og · 2^(e_ng − 21) · Σ_d 2^(8d) Σ_{i in g} q_oi · a_nid

    for processors that multiply bytes (`byte_products`): there several rows take half the time that they take
    by `int8_floats`. w's bytes count from 0, which adds 128 Σ_i a_nid to every sum; each begins so much
    lower.
    """

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


FEW, CHAINS = 2, 2
"""Rows of x that meet all rows of w at once, at most, and sums of a group that are made side by side."""


@small_kernel
def _copied(x: Any, at: int, room: Any, to: int) -> None:
    for i in range(0, GROUP, WIDTH):
        store(room, to + i, load(x, at + i))


class ByFloats:
    """A way of `int8_tiles`, for registers of any width.

    Products of float32: whole numbers of eight bits are converted on the way.

        y_no = Σ_g s_og Σ_{i in g} q_oi · x_ni

    for processors that do not multiply bytes; `int8_digits` is the way of the others. Within a group, numbers
    of even i make one sum and those of odd i another, whatever the number of rows of x: a processor begins
    the next product of one sum while it is still at another's.
    """

    record, at_once = GROUP, 4 if WIDTH == SIDE else FEW
    ready = staticmethod(_copied)
    """A kernel: the record of x[at …], which has all numbers of a group."""

    def add(
        self, builder: Any, w: Any, at: Any, _: Any, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """All rows of w at once for a few of x, else a register's worth of them after another."""
        count = REGISTERS if len(records) <= FEW else 1
        for h in range(0, REGISTERS, count):
            self._add(builder, w, at, range(h, h + count), x, records, totals)

    def _add(
        self, builder: Any, w: Any, at: Any, some: range, x: Any, records: list[Any], totals: list[list[Any]]
    ) -> None:
        """The rows of w whose sums are in these registers. Memory keeps up without being asked."""
        kind = at.type
        pairs = [(record, total, h) for record, total in zip(records, totals, strict=True) for h in some]
        sums = {
            (r, j): cgutils.alloca_once(builder, FLOATS) for r in range(len(pairs)) for j in range(CHAINS)
        }
        for place in sums.values():
            builder.store(ir.Constant(FLOATS, [0.0] * WIDTH), place)
        with cgutils.for_range_slice(builder, kind(0), kind(GROUP // 4), kind(1), kind) as (k, _):
            begin = builder.add(builder.add(at, kind(BEGIN)), builder.mul(k, kind(WORD)))
            codes = {h: at_index(builder, w, builder.add(begin, kind(4 * h * WIDTH)), INTS) for h in some}
            for j in range(4):
                numbers = {h: _numbers(builder, codes[h], j) for h in some}
                i = builder.add(builder.mul(k, kind(4)), kind(j))
                for r, (record, _, h) in enumerate(pairs):
                    own = spread_lanes(builder, at_index(builder, x, builder.add(record, i), FLOAT))
                    place = sums[r, j % CHAINS]
                    builder.store(fused_lanes(builder, numbers[h], own, builder.load(place)), place)
        for r, (_, total, h) in enumerate(pairs):
            scales = at_index(builder, w, builder.add(at, kind(4 * h * WIDTH)), FLOATS)
            found = builder.fadd(*(builder.load(sums[r, j]) for j in range(CHAINS)))
            builder.store(fused_lanes(builder, found, scales, builder.load(total[h])), total[h])


def _numbers(builder: Any, codes: Any, j: int) -> Any:
    """The j-th byte of every lane, as a number."""
    byte = builder.and_(builder.lshr(codes, whole(8 * j)), whole(255))
    return builder.sitofp(builder.sub(byte, whole(MIDDLE)), FLOATS)


AHEAD = 2
"""Groups of w that are asked for before they are wanted."""
MOST = 8
"""Rows of x that meet w at a time."""
WAY = ByDigits() if BYTE_PRODUCTS else ByFloats()
INPUT_RECORD, _ready = WAY.record, WAY.ready
_eight, _four, _three, _two, _one = (tile_of(R, WAY) for R in (MOST, 4, 3, 2, 1))
ZERO = np.float32(0)
A_GROUP: Any = np.int64(GROUP)
A_TILE: Any = np.int64(MOST * SIDE)
"""Numbers of memory to reserve; no constants (`stack_memory`)."""


class Inputs(NamedTuple):
    """Rows of x, and the same rows ready to be multiplied with whole numbers, where there are any."""

    x: Any
    ready: Any


@small_kernel
def groups_of(inputs: int) -> int:
    """Groups of a row, the last of which may be filled up."""
    return (inputs + GROUP - 1) // GROUP


@small_kernel
def total_bytes(outputs: int, inputs: int) -> int:
    """Bytes of a matrix."""
    return (outputs + SIDE - 1) // SIDE * groups_of(inputs) * BYTES


@kernel
def prepare(x: Any, inputs: int, n: int, ready: Any) -> None:
    """Row n of x, made ready."""
    groups, at = groups_of(inputs), n * inputs
    to = n * groups * INPUT_RECORD
    for g in range(inputs // GROUP):
        _ready(x, at + g * GROUP, ready, to + g * INPUT_RECORD)
    left = inputs % GROUP
    if left:
        last = floats(reserve(A_GROUP), GROUP)
        for i in range(GROUP):
            last[i] = x[at + inputs - left + i] if i < left else ZERO
        _ready(last, NOUGHT, ready, to + (groups - 1) * INPUT_RECORD)


@kernel
def _meet(w: Any, at: int, ready: Any, n: int, count: int, groups: int, y: Any, to: int, below: int) -> None:
    """`count` rows of x, from the n-th on, with the rows of w whose first group begins at byte `at`."""
    between = groups * INPUT_RECORD
    ahead = groups * BYTES if n else AHEAD * BYTES
    if count == MOST:
        _eight(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 4:
        _four(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 3:
        _three(w, at, ahead, ready, n * between, between, groups, y, to, below)
    elif count == 2:
        _two(w, at, ahead, ready, n * between, between, groups, y, to, below)
    else:
        _one(w, at, ahead, ready, n * between, between, groups, y, to, below)


@kernel
def product(w: Any, inputs: int, ready: Any, rows: int, out: Outputs, first: int, last: int) -> None:
    """All rows of x, which are ready, with the rows of w from `first` to `last` − 1."""
    groups = groups_of(inputs)
    spare = floats(reserve(A_TILE), MOST * SIDE)
    for begin in range(first // SIDE * SIDE, last, SIDE):
        at, low, high = begin // SIDE * groups * BYTES, max(first, begin), min(last, begin + SIDE)
        n = NOUGHT
        while n < rows:
            count = MOST if rows - n >= MOST else min(4, rows - n)
            to = n * out.width + out.shift
            if high - low == SIDE:
                _meet(w, at, ready, n, count, groups, out.y, to + begin, out.width)
            else:
                _meet(w, at, ready, n, count, groups, spare, NOUGHT, SIDE)
                for r in range(count):
                    for o in range(low, high):
                        out.y[to + r * out.width + o] = spare[r * SIDE + o - begin]
            n += count


@kernel
def row(w: Any, number: int, inputs: int, y: Any, to: int) -> None:
    """y[to : to + inputs] = a restored row."""
    side = number % SIDE
    for i in range(inputs):
        at = (number // SIDE * groups_of(inputs) + i // GROUP) * BYTES
        byte = w[at + BEGIN + i % GROUP // 4 * WORD + 4 * side + i % 4]
        y[to + i] = (np.float32(byte) - np.float32(MIDDLE)) * single(w, at + 4 * side)
