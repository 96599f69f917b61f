"""Packed numbers to lanes: bytes, nibbles and halves of a float as files of quantised weights have them.

`Codes` are as many whole numbers as there are lanes, taken from bytes that may lie at any address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.kernel import operation, small_kernel
from unspool.engine.simd import (
    CHECKED,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    WIDTH,
    Register,
    called,
    has,
    has_instruction,
    pointer,
    spread_lanes,
    whole,
)

BYTE, SHORT = ir.IntType(8), ir.IntType(16)
BYTES_OF_LANES, SHORTS = ir.VectorType(BYTE, WIDTH), ir.VectorType(SHORT, WIDTH)


CONVERTS = has_instruction("f16c")
"""Whether half-precision numbers are converted by one instruction."""
REBIAS = 2.0**112
"""A half's bits, moved to where a float32 has its own, are too small by this: its exponents begin at 15."""


CODES = Register("Codes", INTS)


def _read(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    found = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], kind))
    found.align = 1
    return found


@operation
def _bytes(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_read(context, builder, signature, args, BYTES_OF_LANES), INTS)

    return CODES(array, types.intp), build


@operation
def _signed_bytes(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_read(context, builder, signature, args, BYTES_OF_LANES), INTS)

    return CODES(array, types.intp), build


@operation
def _shorts(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_read(context, builder, signature, args, SHORTS), INTS)

    return CODES(array, types.intp), build


@operation
def _single(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _read(context, builder, signature, args, FLOAT)

    return types.float32(array, types.intp), build


def _halves_to_floats(builder: Any, bits: Any, kind: Any, whole: Any) -> Any:
    """Half-precision bits (a vector or one) as float32: exact, but for infinities and NaN."""
    if CONVERTS:
        halves = ir.VectorType(ir.HalfType(), WIDTH) if kind is FLOATS else ir.HalfType()
        short = SHORTS if kind is FLOATS else SHORT
        return builder.fpext(builder.bitcast(builder.trunc(bits, short), halves), kind)
    sign = builder.shl(builder.and_(bits, whole(0x8000)), whole(16))
    size = builder.shl(builder.and_(bits, whole(0x7FFF)), whole(13))
    rebias = ir.Constant(kind, [REBIAS] * WIDTH if kind is FLOATS else REBIAS)
    found = builder.fmul(builder.bitcast(size, kind), rebias)
    return builder.bitcast(builder.or_(builder.bitcast(found, bits.type), sign), kind)


@operation
def _half(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.zext(_read(context, builder, signature, args, SHORT), INT)
        return _halves_to_floats(builder, bits, FLOAT, INT)

    return types.float32(array, types.intp), build


@operation
def from_halves(_: Any, codes: Any) -> Any:
    """16 bits of each code are a number in half precision."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return _halves_to_floats(builder, args[0], FLOATS, whole)

    return LANES(codes), build


@operation
def from_bfloats(_: Any, codes: Any) -> Any:
    """16 bits of each code are the upper half of a float32."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(args[0], whole(16)), FLOATS)

    return LANES(codes), build


@small_kernel
def _look(array: Any, index: int, size: int) -> None:
    if CHECKED and (index < 0 or index + size > array.size):
        raise IndexError("packed numbers are read outside an array")


@small_kernel
def codes(array: Any, index: int) -> Any:
    """WIDTH bytes from 0 to 255."""
    _look(array, index, WIDTH)
    return _bytes(array, index)


@small_kernel
def signed_codes(array: Any, index: int) -> Any:
    """WIDTH bytes from −128 to 127."""
    _look(array, index, WIDTH)
    return _signed_bytes(array, index)


@small_kernel
def shorts(array: Any, index: int) -> Any:
    """WIDTH numbers of two bytes each, from byte `index` on."""
    _look(array, index, 2 * WIDTH)
    return _shorts(array, index)


@small_kernel
def single(array: Any, index: int) -> Any:
    """The float32 whose four bytes begin at byte `index`."""
    _look(array, index, 4)
    return _single(array, index)


@small_kernel
def half(array: Any, index: int) -> Any:
    """The number in half precision whose two bytes begin at byte `index`."""
    _look(array, index, 2)
    return _half(array, index)


@operation
def _part(_: Any, codes: Any, shift: Any, mask: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        def all_lanes(number: Any) -> Any:
            narrow = builder.trunc(number, INT)
            first = builder.insert_element(ir.Constant(INTS, ir.Undefined), narrow, INT(0))
            return builder.shuffle_vector(first, ir.Constant(INTS, ir.Undefined), whole(0))

        return builder.and_(builder.lshr(args[0], all_lanes(args[1])), all_lanes(args[2]))

    return CODES(codes, types.int64, types.int64), build


@small_kernel
def part(found: Any, shift: int, mask: int) -> Any:
    """(code >> shift) & mask."""
    return _part(found, np.int64(shift), np.int64(mask))


@operation
def above(_: Any, low: Any, high: Any) -> Any:
    """low + 16 · high: the bits of a nibble, and those that stand above it."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.or_(args[0], builder.shl(args[1], whole(4)))

    return CODES(low, high), build


@operation
def numbers(_: Any, codes: Any) -> Any:
    """Whole numbers as float32."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.sitofp(args[0], FLOATS)

    return LANES(codes), build


# Sums of products of bytes, four to a lane, and what makes float32 numbers fit for them.
#
#     s_l ← s_l + Σ_{j<4} u[4l + j] · v[4l + j],     u from 0 to 255, v from −128 to 127
#
# is one instruction of processors with AVX-512 VNNI, with four times the products of a fused multiply-add. A
# float32 number is no byte, but three of them hold what a sum of 64 products needs of it: with e the exponent
# of the largest of the 64 numbers,
#
#     x = 2^(e − 21) · (a₀ + 2⁸ a₁ + 2¹⁶ a₂),     a from −128 to 127
#
# is off by 2^(e − 22) at most, an eighth of a millionth of the largest. Products of digits with bytes, and
# sums of them, are whole numbers: exact, in whatever order they are made.


BYTE_PRODUCTS = has("avx512vnni") and has("avx512f")
"""Whether the processor has the instruction."""

NUMBERS, DIGITS = 64, 3
"""Float32 numbers that share an exponent, and the bytes that each of them becomes."""
WORDS = NUMBERS // 4
"""Words of four bytes that hold one digit of all numbers."""
SHIFTS, SCALE = DIGITS * WORDS, DIGITS * WORDS + DIGITS
"""Behind the digits: what the sum of each digit's products begins with, and 2^(e − 21) as float32."""
RECORD = SCALE + 1
"""Words of all of it."""
MIDDLE = 128
"""A byte from 0 to 255 stands for a number so much lower."""

BYTES = ir.VectorType(ir.IntType(8), WIDTH)
MANTISSA, BIAS, KEPT, STRANGE = 23, 127, 21, 255
"""Bits behind a float32's point, where its exponents begin, the 21 above, and the exponent of no number."""
NAN = 0x7FC00000


def byte_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """sums + unsigned · signed, of values of LLVM: lanes of four bytes each."""
    kind = ir.FunctionType(INTS, [INTS] * 3)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * WIDTH}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [sums, unsigned, signed])


def _reduced(builder: Any, how: str, lanes: Any) -> Any:
    """All lanes made one."""
    kind, name = ir.FunctionType(INT, [INTS]), f"llvm.vector.reduce.{how}.v{WIDTH}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [lanes])


def _exponent(builder: Any, lanes: list[Any]) -> Any:
    """The largest one, as the bits of a number have it."""
    sizes = [builder.and_(builder.bitcast(it, INTS), whole(0x7FFFFFFF)) for it in lanes]
    most = sizes[0]
    for it in sizes[1:]:
        most = builder.select(builder.icmp_unsigned(">", it, most), it, most)
    return builder.lshr(_reduced(builder, "umax", most), INT(MANTISSA))


@operation
def _digits(_: Any, x: Any, at: Any, room: Any, to: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def lanes(k: int) -> Any:
            begin = builder.add(args[1], args[1].type(k * WIDTH))
            found = builder.load(pointer(context, builder, signature.args[0], args[0], begin, FLOATS))
            found.align = 4
            return found

        def put(value: Any, index: int) -> None:
            begin = builder.add(args[3], args[3].type(index))
            where = pointer(context, builder, signature.args[2], args[2], begin, value.type)
            builder.store(value, where, align=4)

        numbers = [lanes(k) for k in range(NUMBERS // WIDTH)]
        found = _exponent(builder, numbers)
        strange = builder.icmp_signed("==", found, INT(STRANGE))
        # What is smaller than the smallest float32 that has 21 bits below it becomes 0.
        none = builder.or_(strange, builder.icmp_signed("<", found, INT(KEPT)))
        exponent = builder.select(none, INT(KEPT), found)
        up = builder.shl(builder.sub(INT(2 * BIAS + KEPT), exponent), INT(MANTISSA))
        times = spread_lanes(builder, builder.select(strange, FLOAT(0.0), builder.bitcast(up, FLOAT)))
        down = builder.shl(builder.sub(exponent, INT(KEPT)), INT(MANTISSA))
        put(builder.select(strange, INT(NAN), down), SCALE)
        totals = [whole(0)] * (DIGITS + 1)
        for k, it in enumerate(numbers):
            left = builder.fptosi(called(builder, "rint", builder.fmul(it, times)), INTS)
            for d in range(DIGITS):
                totals[d] = builder.add(totals[d], left)
                put(builder.trunc(left, BYTES), d * WORDS + k * WIDTH // 4)
                left = builder.ashr(builder.add(left, whole(MIDDLE)), whole(8))
        sums = [_reduced(builder, "add", it) for it in totals]
        for d in range(DIGITS):
            own = builder.sub(sums[d], builder.shl(sums[d + 1], INT(8)))
            put(builder.mul(own, INT(-MIDDLE)), SHIFTS + d)
        return context.get_dummy_value()

    return types.void(x, types.intp, room, types.intp), build


@small_kernel
def digits(x: Any, at: int, room: Any, to: int) -> None:
    """room[to : to + RECORD] = the digits of x[at : at + NUMBERS], and what belongs to them."""
    if CHECKED and (min(at, to) < 0 or at + NUMBERS > x.size or to + RECORD > room.size):
        raise IndexError("digits are made outside an array")
    _digits(x, at, room, to)
