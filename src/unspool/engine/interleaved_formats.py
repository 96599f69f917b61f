"""Quantised weights as products read them: 16 rows of w are interleaved, four codes of each at a time.

    w_oi = d_o · q_oi + m_o        d and m of a subgroup of 16, 32 or 64 inputs, q a byte

A format is decoded 64 inputs at a time: a word holds four codes of each row, and word k those of the inputs
4k to 4k + 3. Each method generates LLVM code. INT8 is stored like this (`weight_formats`). ggml's blocks are
interleaved when a compiled engine is built: bytes are permuted, so that they take no more memory and unpack
to the same numbers.

    field of a block      scales and their six bits   codes
    interleaved           one of each of 16 rows      four bytes of each of 16 rows, then the next four
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from unspool.engine.simd import FLOATS, INTS, int_constant, llvm_splat, load_as
from unspool.engine.simd_bytes import BYTES, SHORTS, ZERO_BYTE, halves_to_floats
from unspool.engine.weight_formats import (
    INT8,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    SIDE,
    WeightFormat,
)

GROUP, WORDS = 64, 16
"""Inputs that are decoded at once, and their words."""
WORD_BYTES = 4 * SIDE
SIX_BITS, LOW_NIBBLE = 63, 15
NIBBLES, TWO_BITS, ONE_BIT = 0x0F0F0F0F, 0x03030303, 0x01010101
"""Masks of the four bytes of a word."""


def load_at(builder: Any, data: Any, index: Any, kind: Any) -> Any:
    """Load a value of this type at data[index]."""
    return load_as(builder, builder.gep(data, [index]), kind, 1)


def _mask(builder: Any, codes: Any, shift: Any, mask: int) -> Any:
    """(codes >> shift) & mask; the shift is a number or an LLVM value."""
    if not isinstance(shift, int):
        codes = builder.lshr(codes, llvm_splat(builder, builder.trunc(shift, ir.IntType(32))))
    elif shift:
        codes = builder.lshr(codes, int_constant(shift))
    return builder.and_(codes, int_constant(mask))


def _with_fifth(builder: Any, codes: Any, fifth: Any, shift: Any) -> Any:
    """Codes of four bits, with a fifth from these bits of four bytes."""
    return builder.or_(codes, builder.shl(_mask(builder, fifth, shift, ONE_BIT), int_constant(4)))


class Place:
    """A group of 64 inputs in memory: its block begins at byte `at`, and `quarter` is its number there.

    `row` is the first of the interleaved rows that a vector holds.
    """

    def __init__(self, builder: Any, w: Any, at: Any, quarter: Any, row: Any) -> None:
        self.builder, self.w, self.at, self.quarter, self.row = builder, w, at, quarter, row

    def _load(self, offset: Any, row_bytes: int, kind: Any) -> Any:
        row = self.builder.mul(self.row, self.row.type(row_bytes))
        offset = self.at.type(offset) if isinstance(offset, int) else offset
        index = self.builder.add(self.builder.add(self.at, offset), row)
        return load_at(self.builder, self.w, index, kind)

    def times(self, value: Any, factor: int, more: int = 0) -> Any:
        """value · factor + more."""
        return self.builder.add(self.builder.mul(value, value.type(factor)), value.type(more))

    def words(self, offset: Any) -> Any:
        """Four bytes of each row."""
        return self._load(offset, 4, INTS)

    def floats(self, offset: Any) -> Any:
        """A float32 of each row."""
        return self._load(offset, 4, FLOATS)

    def halves(self, offset: Any) -> Any:
        """A float16 of each row, as float32."""
        return halves_to_floats(self.builder, self.builder.zext(self._load(offset, 2, SHORTS), INTS))

    def bytes(self, offset: Any, *, is_signed: bool = False) -> Any:
        """A byte of each row, as an integer."""
        codes = self._load(offset, 1, BYTES)
        return self.builder.sext(codes, INTS) if is_signed else self.builder.zext(codes, INTS)


class Int8:
    """INT8: d as float32; one subgroup."""

    kind, zero, subgroups = INT8, ZERO_BYTE, 1

    def codes(self, place: Place, word: int) -> Any:
        """The codes of a word, bytes from 0 to 255."""
        return place.words(WORD_BYTES * (word + 1))

    def scales(self, place: Place, _: int) -> tuple[Any, Any]:
        """(d, m) of a subgroup; m is None if it is −zero · d."""
        return place.floats(0), None


class Simple:
    """Formats of two blocks of 32; those of 4 and 5 bits have numbers 16 to 31 in the upper nibbles."""

    subgroups = 2

    def __init__(self, kind: WeightFormat, zero: int, header: int, bits: int) -> None:
        self.kind, self.zero, self.header, self.bits = kind, zero, header, bits

    def codes(self, place: Place, word: int) -> Any:
        """See `Int8`."""
        block, k = divmod(word, 8)
        begin = SIDE * (block * self.kind.block_bytes + self.header)
        if self.bits == 8:
            return place.words(begin + WORD_BYTES * k)
        codes = _mask(place.builder, place.words(begin + WORD_BYTES * (k % 4)), k // 4 * 4, NIBBLES)
        if self.bits == 4:
            return codes
        return _with_fifth(place.builder, codes, place.words(begin - WORD_BYTES), k)

    def scales(self, place: Place, subgroup: int) -> tuple[Any, Any]:
        """See `Int8`."""
        begin = SIDE * subgroup * self.kind.block_bytes
        return place.halves(begin), None if self.zero else place.halves(begin + 2 * SIDE)


class SixBitScales:
    """Q4_K and Q5_K: a quarter of a block has 32 numbers in lower nibbles, then 32 in upper ones."""

    zero, subgroups = 0, 2

    def __init__(self, kind: WeightFormat) -> None:
        self.kind, self.has_fifth = kind, kind == Q5_K

    def codes(self, place: Place, word: int) -> Any:
        """See `Int8`."""
        half, k = divmod(word, 8)
        begin = SIDE * (48 if self.has_fifth else 16)
        low = place.words(place.times(place.quarter, 8 * WORD_BYTES, begin + WORD_BYTES * k))
        codes = _mask(place.builder, low, 4 * half, NIBBLES)
        if not self.has_fifth:
            return codes
        fifth = place.words(16 * SIDE + WORD_BYTES * k)
        return _with_fifth(place.builder, codes, fifth, place.times(place.quarter, 2, half))

    def scales(self, place: Place, subgroup: int) -> tuple[Any, Any]:
        """See `Int8` and `weight_formats`."""
        builder, number = place.builder, place.quarter.type
        is_first = builder.icmp_unsigned("<", place.quarter, number(2))
        column = place.times(builder.and_(place.quarter, number(1)), 2 * SIDE, SIDE * (4 + subgroup))
        first, second, third = (place.bytes(builder.add(column, number(4 * k * SIDE))) for k in range(3))
        last = (_mask(builder, third, 0, LOW_NIBBLE), _mask(builder, third, 4, LOW_NIBBLE))
        factors = []
        for byte, low, offset in zip((first, second), last, (0, 2 * SIDE), strict=True):
            joined = builder.or_(low, _mask(builder, byte, 2, SIX_BITS - LOW_NIBBLE))
            bits = builder.select(is_first, _mask(builder, byte, 0, SIX_BITS), joined)
            factors.append(builder.fmul(place.halves(offset), builder.sitofp(bits, FLOATS)))
        return factors[0], builder.fneg(factors[1])


class SixBits:
    """Q6_K: subgroups of 16 numbers; four lower bits, then two upper ones."""

    kind, zero, subgroups = Q6_K, 32, 4

    def codes(self, place: Place, word: int) -> Any:
        """See `Int8`."""
        builder, number = place.builder, place.quarter.type
        half = builder.lshr(place.quarter, number(1))
        shift = builder.mul(builder.and_(place.quarter, number(1)), number(4))
        low = place.words(place.times(half, 16 * WORD_BYTES, WORD_BYTES * word))
        high = place.words(place.times(half, 8 * WORD_BYTES, 128 * SIDE + WORD_BYTES * (word % 8)))
        upper = _mask(builder, high, builder.add(shift, number(word // 8 * 2)), TWO_BITS)
        lower = _mask(builder, low, shift, NIBBLES)
        return builder.or_(lower, builder.shl(upper, int_constant(4)))

    def scales(self, place: Place, subgroup: int) -> tuple[Any, Any]:
        """See `Int8`."""
        at = place.times(place.quarter, 4 * SIDE, SIDE * (192 + subgroup))
        s = place.builder.sitofp(place.bytes(at, is_signed=True), FLOATS)
        return place.builder.fmul(place.halves(208 * SIDE), s), None


Layout = Int8 | Simple | SixBitScales | SixBits

LAYOUTS: dict[WeightFormat, Layout] = {
    INT8: Int8(),
    Q8_0: Simple(Q8_0, ZERO_BYTE, 2, bits=8),
    Q4_0: Simple(Q4_0, 8, 2, bits=4),
    Q4_1: Simple(Q4_1, 0, 4, bits=4),
    Q5_0: Simple(Q5_0, 16, 6, bits=5),
    Q5_1: Simple(Q5_1, 0, 8, bits=5),
    Q4_K: SixBitScales(Q4_K),
    Q5_K: SixBitScales(Q5_K),
    Q6_K: SixBits(),
}
"""Format → how its interleaved rows are decoded."""


def group_bytes(kind: WeightFormat) -> int:
    """Bytes of 64 inputs of the interleaved rows, on average."""
    return SIDE * kind.block_bytes * GROUP // kind.block


def place_of_group(builder: Any, layout: Layout, w: Any, start: Any, group: Any, row: Any) -> Place:
    """The place of a group of the interleaved rows that begin at byte `start`."""
    number, size = group.type, group_bytes(layout.kind)
    quarters = max(1, layout.kind.block // GROUP)
    block = builder.udiv(group, number(quarters))
    quarter = builder.urem(group, number(quarters))
    return Place(builder, w, builder.add(start, builder.mul(block, number(quarters * size))), quarter, row)
