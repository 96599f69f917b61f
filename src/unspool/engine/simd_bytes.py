"""SIMD vectors from packed data: float16, bfloat16, and dot products of bytes.

An `INT_VECTOR` holds WIDTH integers ("codes") that were loaded from unaligned bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from unspool.engine.kernel import inline_kernel, instruction, llvm_intrinsic, memory_instruction
from unspool.engine.simd import (
    BOUNDSCHECK,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    VECTOR,
    WIDTH,
    VectorType,
    call_on_vectors,
    cpu_has,
    has_instruction,
    int_constant,
    llvm_call,
    llvm_splat,
    load_as,
    store_as,
)

SHORT = ir.IntType(16)
BYTES, SHORTS = ir.VectorType(ir.IntType(8), WIDTH), ir.VectorType(SHORT, WIDTH)
HAS_F16C = has_instruction("f16c")
"""Whether one instruction converts float16 to float32."""
REBIAS = 2.0**112
"""The bits of a float16, shifted to their place in a float32, are too small by this factor."""
MAX_HALF = 65504.0
"""The largest float16."""
INT_VECTOR = VectorType("IntVector", INTS)


def halves_to_floats(builder: Any, bits: Any) -> Any:
    """The lower 16 bits of codes (a vector or one), read as float16; exact, except for infinities and NaN."""
    is_vector = bits.type == INTS
    kind, constant = (FLOATS, int_constant) if is_vector else (FLOAT, INT)
    if HAS_F16C:
        halves = ir.VectorType(ir.HalfType(), WIDTH) if is_vector else ir.HalfType()
        short = builder.trunc(bits, SHORTS if is_vector else SHORT)
        return builder.fpext(builder.bitcast(short, halves), kind)
    sign = builder.shl(builder.and_(bits, constant(0x8000)), constant(16))
    size = builder.shl(builder.and_(bits, constant(0x7FFF)), constant(13))
    rebias = ir.Constant(kind, [REBIAS] * WIDTH if is_vector else REBIAS)
    value = builder.fmul(builder.bitcast(size, kind), rebias)
    return builder.bitcast(builder.or_(builder.bitcast(value, bits.type), sign), kind)


def _float_to_half(builder: Any, x: Any) -> Any:
    """The bits of the float16 nearest to a float32; beyond the largest float16, that one."""
    for comparison, limit in ((">", MAX_HALF), ("<", -MAX_HALF)):
        is_outside = builder.fcmp_ordered(comparison, x, FLOAT(limit))
        x = builder.select(is_outside, FLOAT(limit), x)
    if HAS_F16C:
        return builder.bitcast(builder.fptrunc(x, ir.HalfType()), SHORT)
    bits = builder.bitcast(x, INT)
    size = builder.bitcast(builder.and_(bits, INT(0x7FFFFFFF)), FLOAT)
    small = builder.bitcast(builder.fmul(size, FLOAT(1 / REBIAS)), INT)
    is_odd = builder.and_(builder.lshr(small, INT(13)), INT(1))  # ties go to the even one
    rounded = builder.lshr(builder.add(builder.add(small, INT(0xFFF)), is_odd), INT(13))
    sign = builder.and_(builder.lshr(bits, INT(16)), INT(0x8000))
    return builder.trunc(builder.or_(rounded, sign), SHORT)


def packed_load(kind: Any, convert: Callable[[Any, Any], Any], result: Any, size: int) -> Callable[..., Any]:
    """The kernel that loads a value of `size` bytes at any byte of an array and converts it."""
    read = memory_instruction(
        lambda builder, where: convert(builder, load_as(builder, where, kind, 1)), result
    )

    @inline_kernel
    def checked(array: Any, index: int) -> Any:
        if BOUNDSCHECK and (index < 0 or index + size > array.size):
            raise IndexError("packed data is read outside an array")
        return read(array, index)

    return checked


load_uint16 = packed_load(SHORTS, lambda builder, it: builder.zext(it, INTS), INT_VECTOR, 2 * WIDTH)
"""WIDTH uint16."""
float16_to_float32 = instruction(halves_to_floats, VECTOR, INT_VECTOR)
"""The lower 16 bits of each code, read as float16."""
float_to_half = instruction(_float_to_half, types.uint16, types.float32)
"""The bits of the float16 nearest to a number, within ±MAX_HALF; NaN stays NaN."""
bfloat16_to_float32 = instruction(
    lambda builder, codes: builder.bitcast(builder.shl(codes, int_constant(16)), FLOATS), VECTOR, INT_VECTOR
)
"""The lower 16 bits of each code, read as bfloat16 (the upper half of a float32)."""
# Dot products of bytes. With AVX-512 VNNI,
#
#     s_l ← s_l + Σ_{j<4} u[4l + j] · v[4l + j],     u from 0 to 255, v from −128 to 127
#
# is one instruction with four times the products of a fused multiply-add. A float32 is split into two bytes
# ("digits"), in units of the largest of 64 numbers:
#
#     scale = max |x| / LARGEST,   a = round(x / scale) = low + 2⁸ high,   low and high from −128 to 127
#
# with an error of at most scale/2, a 65,000th of the largest. Products of digits and bytes and their sums are
# integers, so they are exact in any order.


HAS_VNNI = cpu_has("avx512vnni") and cpu_has("avx512f")
"""Whether the processor has this instruction."""

DIGIT_GROUP, DIGITS = 64, 2
"""float32 numbers that share a scale, and the digits of each."""
WORDS = DIGIT_GROUP // 4
"""32-bit words that hold one digit of all numbers of a group."""
SCALE, SUMS = DIGITS * WORDS, DIGITS * WORDS + 1
"""Offsets behind the digits: the scale, and Σ a over each quarter, each half and all of the group."""
DIGIT_RECORD = SUMS + 7
"""Words of a group's record: digits, scale and sums."""
ZERO_BYTE = 128
"""A stored byte b stands for the number b − ZERO_BYTE."""

LARGEST = 127 * 256
"""The largest a, whose digits are 127 and 0."""
MIN_LARGEST = 2.0**-100
"""A group whose numbers are all smaller becomes 0."""
INFINITY_BITS, NAN = 0x7F800000, 0x7FC00000


def dot_bytes(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """sums + unsigned · signed of LLVM vectors, with four bytes in each element."""
    return llvm_call(builder, f"x86.avx512.vpdpbusd.{32 * WIDTH}", INTS, sums, unsigned, signed)


def _reduce_ints(builder: Any, how: str, vector: Any) -> Any:
    return llvm_call(builder, f"vector.reduce.{how}.v{WIDTH}i32", INT, vector)


def _largest_bits(builder: Any, vectors: list[Any]) -> Any:
    """The bits of the largest |x|, which are ordered as the numbers are; those of NaN are larger."""
    sizes = [builder.and_(builder.bitcast(it, INTS), int_constant(0x7FFFFFFF)) for it in vectors]
    most = sizes[0]
    for it in sizes[1:]:
        most = builder.select(builder.icmp_unsigned(">", it, most), it, most)
    return _reduce_ints(builder, "umax", most)


@llvm_intrinsic
def _split_digits(_: Any, x: Any, at: Any, record: Any, to: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, at, _, to = args
        x_data, record_data = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )

        def vector(k: int) -> Any:
            return load_as(builder, builder.gep(x_data, [builder.add(at, at.type(k * WIDTH))]), FLOATS)

        def put(value: Any, index: int) -> None:
            store_as(builder, builder.gep(record_data, [builder.add(to, to.type(index))]), value)

        numbers = [vector(k) for k in range(DIGIT_GROUP // WIDTH)]
        bits = _largest_bits(builder, numbers)
        largest, zero = builder.bitcast(bits, FLOAT), FLOAT(0.0)
        is_nan = builder.icmp_unsigned(">=", bits, INT(INFINITY_BITS))
        is_zero = builder.or_(is_nan, builder.fcmp_ordered("<", largest, FLOAT(MIN_LARGEST)))
        scale = builder.select(is_zero, zero, builder.fdiv(largest, FLOAT(LARGEST)))
        put(builder.select(is_nan, builder.bitcast(INT(NAN), FLOAT), scale), SCALE)
        times = llvm_splat(builder, builder.select(is_zero, zero, builder.fdiv(FLOAT(LARGEST), largest)))
        quarters = []
        for k, it in enumerate(numbers):  # VNNI has 16 numbers in a vector: a quarter
            a = builder.fptosi(call_on_vectors(builder, "rint", builder.fmul(it, times)), INTS)
            high = builder.ashr(builder.add(a, int_constant(ZERO_BYTE)), int_constant(8))
            put(builder.trunc(a, BYTES), k * WIDTH // 4)
            put(builder.trunc(high, BYTES), WORDS + k * WIDTH // 4)
            quarters.append(builder.sitofp(_reduce_ints(builder, "add", a), FLOAT))
        halves = [builder.fadd(*quarters[:2]), builder.fadd(*quarters[2:])]
        for i, total in enumerate([*quarters, *halves, builder.fadd(*halves)]):
            put(total, SUMS + i)
        return context.get_dummy_value()

    return types.void(x, types.intp, record, types.intp), build


@inline_kernel
def split_digits(x: Any, at: int, record: Any, to: int) -> None:
    """record[to : to + DIGIT_RECORD] = the record of x[at : at + DIGIT_GROUP]."""
    if BOUNDSCHECK and (min(at, to) < 0 or at + DIGIT_GROUP > x.size or to + DIGIT_RECORD > record.size):
        raise IndexError("digits are read or written outside an array")
    _split_digits(x, at, record, to)
