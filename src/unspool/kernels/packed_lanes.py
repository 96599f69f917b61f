"""Packed numbers to lanes: bytes, nibbles and halves of a float as files of quantised weights have them.

`Codes` are as many whole numbers as there are lanes, taken from bytes that may lie at any address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from unspool.kernels.kernel import operation, small_kernel
from unspool.kernels.lanes import (
    CHECKED,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    LANES,
    WIDTH,
    Register,
    has_instruction,
    pointer,
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
