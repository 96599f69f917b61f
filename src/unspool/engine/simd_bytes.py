"""SIMD vectors from packed data: the bytes, nibbles, float16 and bfloat16 of quantised weights.

An `INT_VECTOR` holds WIDTH integers ("codes") that were loaded from unaligned bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.kernel import inline_kernel, llvm_intrinsic
from unspool.engine.simd import (
    BOUNDSCHECK,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    VECTOR,
    WIDTH,
    VectorType,
    call_llvm,
    cpu_has,
    has_instruction,
    int_constant,
    llvm_splat,
    pointer,
)

BYTE, SHORT = ir.IntType(8), ir.IntType(16)
BYTE_VECTOR, SHORTS = ir.VectorType(BYTE, WIDTH), ir.VectorType(SHORT, WIDTH)


HAS_F16C = has_instruction("f16c")
"""Whether one instruction converts float16 to float32."""
REBIAS = 2.0**112
"""The bits of a float16, shifted to their place in a float32, are too small by this factor: its bias is
15."""


INT_VECTOR = VectorType("IntVector", INTS)


def _read(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    value = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], kind))
    value.align = 1
    return value


@llvm_intrinsic
def _load_bytes(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_read(context, builder, signature, args, BYTE_VECTOR), INTS)

    return INT_VECTOR(array, types.intp), build


@llvm_intrinsic
def _load_signed_bytes(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_read(context, builder, signature, args, BYTE_VECTOR), INTS)

    return INT_VECTOR(array, types.intp), build


@llvm_intrinsic
def _load_uint16(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(_read(context, builder, signature, args, SHORTS), INTS)

    return INT_VECTOR(array, types.intp), build


@llvm_intrinsic
def _load_float32(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _read(context, builder, signature, args, FLOAT)

    return types.float32(array, types.intp), build


def _halves_to_floats(builder: Any, bits: Any, kind: Any, constant: Any) -> Any:
    """The bits of float16 (a vector or one) as float32; exact, except for infinities and NaN."""
    if HAS_F16C:
        halves = ir.VectorType(ir.HalfType(), WIDTH) if kind is FLOATS else ir.HalfType()
        short = SHORTS if kind is FLOATS else SHORT
        return builder.fpext(builder.bitcast(builder.trunc(bits, short), halves), kind)
    sign = builder.shl(builder.and_(bits, constant(0x8000)), constant(16))
    size = builder.shl(builder.and_(bits, constant(0x7FFF)), constant(13))
    rebias = ir.Constant(kind, [REBIAS] * WIDTH if kind is FLOATS else REBIAS)
    value = builder.fmul(builder.bitcast(size, kind), rebias)
    return builder.bitcast(builder.or_(builder.bitcast(value, bits.type), sign), kind)


@llvm_intrinsic
def _load_float16(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.zext(_read(context, builder, signature, args, SHORT), INT)
        return _halves_to_floats(builder, bits, FLOAT, INT)

    return types.float32(array, types.intp), build


@llvm_intrinsic
def float16_to_float32(_: Any, codes: Any) -> Any:
    """The lower 16 bits of each code, read as float16."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return _halves_to_floats(builder, args[0], FLOATS, int_constant)

    return VECTOR(codes), build


@llvm_intrinsic
def bfloat16_to_float32(_: Any, codes: Any) -> Any:
    """The lower 16 bits of each code, read as bfloat16 (the upper half of a float32)."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(args[0], int_constant(16)), FLOATS)

    return VECTOR(codes), build


@inline_kernel
def _check_bounds(array: Any, index: int, size: int) -> None:
    if BOUNDSCHECK and (index < 0 or index + size > array.size):
        raise IndexError("packed data is read outside an array")


@inline_kernel
def load_bytes(array: Any, index: int) -> Any:
    """WIDTH bytes as integers from 0 to 255."""
    _check_bounds(array, index, WIDTH)
    return _load_bytes(array, index)


@inline_kernel
def load_signed_bytes(array: Any, index: int) -> Any:
    """WIDTH bytes as integers from −128 to 127."""
    _check_bounds(array, index, WIDTH)
    return _load_signed_bytes(array, index)


@inline_kernel
def load_uint16(array: Any, index: int) -> Any:
    """WIDTH uint16, starting at byte `index`."""
    _check_bounds(array, index, 2 * WIDTH)
    return _load_uint16(array, index)


@inline_kernel
def load_float32(array: Any, index: int) -> Any:
    """The float32 at byte `index`."""
    _check_bounds(array, index, 4)
    return _load_float32(array, index)


@inline_kernel
def load_float16(array: Any, index: int) -> Any:
    """The float16 at byte `index`, as float32."""
    _check_bounds(array, index, 2)
    return _load_float16(array, index)


@llvm_intrinsic
def _shift_and_mask(_: Any, codes: Any, shift: Any, mask: Any) -> Any:
    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        def splat(number: Any) -> Any:
            narrow = builder.trunc(number, INT)
            first = builder.insert_element(ir.Constant(INTS, ir.Undefined), narrow, INT(0))
            return builder.shuffle_vector(first, ir.Constant(INTS, ir.Undefined), int_constant(0))

        return builder.and_(builder.lshr(args[0], splat(args[1])), splat(args[2]))

    return INT_VECTOR(codes, types.int64, types.int64), build


@inline_kernel
def shift_and_mask(codes: Any, shift: int, mask: int) -> Any:
    """(code >> shift) & mask."""
    return _shift_and_mask(codes, np.int64(shift), np.int64(mask))


@llvm_intrinsic
def join_nibble(_: Any, low: Any, high: Any) -> Any:
    """low + 16 · high: a nibble and the bits above it."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.or_(args[0], builder.shl(args[1], int_constant(4)))

    return INT_VECTOR(low, high), build


@llvm_intrinsic
def int_to_float(_: Any, codes: Any) -> Any:
    """Integers as float32."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.sitofp(args[0], FLOATS)

    return VECTOR(codes), build


# Dot products of bytes. With AVX-512 VNNI,
#
#     s_l ← s_l + Σ_{j<4} u[4l + j] · v[4l + j],     u from 0 to 255, v from −128 to 127
#
# is one instruction with four times the products of a fused multiply-add. Three bytes ("digits") of a float32
# are enough for a sum of 64 products: with e the exponent of the largest of the 64 numbers,
#
#     x = 2^(e − 21) · (a₀ + 2⁸ a₁ + 2¹⁶ a₂),     a from −128 to 127
#
# has an error of at most 2^(e − 22), an eighth of a millionth of the largest. Products of digits and bytes
# and their sums are integers, so they are exact in any order.


HAS_VNNI = cpu_has("avx512vnni") and cpu_has("avx512f")
"""Whether the processor has this instruction."""

DIGIT_GROUP, DIGITS = 64, 3
"""float32 numbers that share an exponent, and the digits of each."""
WORDS = DIGIT_GROUP // 4
"""32-bit words that hold one digit of all numbers of a group."""
SHIFTS, SCALE = DIGITS * WORDS, DIGITS * WORDS + DIGITS
"""Offsets behind the digits: the start value of each digit's sum, and 2^(e − 21) as float32."""
DIGIT_RECORD = SCALE + 1
"""Words of a group's record: digits, start values and scale."""
ZERO_BYTE = 128
"""A stored byte b stands for the number b − ZERO_BYTE."""

BYTES = ir.VectorType(ir.IntType(8), WIDTH)
MANTISSA, BIAS, DIGIT_BITS, NAN_EXPONENT = 23, 127, 21, 255
"""Mantissa bits of a float32, its exponent bias, the 21 above, and the exponent of infinity and NaN."""
NAN = 0x7FC00000


def dot_bytes(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """sums + unsigned · signed of LLVM vectors, with four bytes in each element."""
    kind = ir.FunctionType(INTS, [INTS] * 3)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * WIDTH}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [sums, unsigned, signed])


def _reduce_ints(builder: Any, how: str, vector: Any) -> Any:
    """Reduce an integer vector to one number."""
    kind, name = ir.FunctionType(INT, [INTS]), f"llvm.vector.reduce.{how}.v{WIDTH}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def _max_exponent(builder: Any, vectors: list[Any]) -> Any:
    """The largest biased exponent of the elements."""
    sizes = [builder.and_(builder.bitcast(it, INTS), int_constant(0x7FFFFFFF)) for it in vectors]
    most = sizes[0]
    for it in sizes[1:]:
        most = builder.select(builder.icmp_unsigned(">", it, most), it, most)
    return builder.lshr(_reduce_ints(builder, "umax", most), INT(MANTISSA))


@llvm_intrinsic
def _split_digits(_: Any, x: Any, at: Any, record: Any, to: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def vector(k: int) -> Any:
            begin = builder.add(args[1], args[1].type(k * WIDTH))
            loaded = builder.load(pointer(context, builder, signature.args[0], args[0], begin, FLOATS))
            loaded.align = 4
            return loaded

        def put(value: Any, index: int) -> None:
            begin = builder.add(args[3], args[3].type(index))
            where = pointer(context, builder, signature.args[2], args[2], begin, value.type)
            builder.store(value, where, align=4)

        numbers = [vector(k) for k in range(DIGIT_GROUP // WIDTH)]
        largest = _max_exponent(builder, numbers)
        is_nan = builder.icmp_signed("==", largest, INT(NAN_EXPONENT))
        # A group of numbers so small that 21 bits below them are not representable becomes 0.
        is_zero = builder.or_(is_nan, builder.icmp_signed("<", largest, INT(DIGIT_BITS)))
        exponent = builder.select(is_zero, INT(DIGIT_BITS), largest)
        up = builder.shl(builder.sub(INT(2 * BIAS + DIGIT_BITS), exponent), INT(MANTISSA))
        times = llvm_splat(builder, builder.select(is_nan, FLOAT(0.0), builder.bitcast(up, FLOAT)))
        down = builder.shl(builder.sub(exponent, INT(DIGIT_BITS)), INT(MANTISSA))
        put(builder.select(is_nan, INT(NAN), down), SCALE)
        totals = [int_constant(0)] * (DIGITS + 1)
        for k, it in enumerate(numbers):
            left = builder.fptosi(call_llvm(builder, "rint", builder.fmul(it, times)), INTS)
            for d in range(DIGITS):
                totals[d] = builder.add(totals[d], left)
                put(builder.trunc(left, BYTES), d * WORDS + k * WIDTH // 4)
                left = builder.ashr(builder.add(left, int_constant(ZERO_BYTE)), int_constant(8))
        sums = [_reduce_ints(builder, "add", it) for it in totals]
        for d in range(DIGITS):
            own = builder.sub(sums[d], builder.shl(sums[d + 1], INT(8)))
            put(builder.mul(own, INT(-ZERO_BYTE)), SHIFTS + d)
        return context.get_dummy_value()

    return types.void(x, types.intp, record, types.intp), build


@inline_kernel
def split_digits(x: Any, at: int, record: Any, to: int) -> None:
    """record[to : to + DIGIT_RECORD] = the record of x[at : at + DIGIT_GROUP]."""
    if BOUNDSCHECK and (min(at, to) < 0 or at + DIGIT_GROUP > x.size or to + DIGIT_RECORD > record.size):
        raise IndexError("digits are read or written outside an array")
    _split_digits(x, at, record, to)
