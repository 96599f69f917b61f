"""Sums of products of bytes, four to a lane, and what makes float32 numbers fit for them.

    s_l ← s_l + Σ_{j<4} u[4l + j] · v[4l + j],     u from 0 to 255, v from −128 to 127

is one instruction of processors with AVX-512 VNNI, with four times the products of a fused multiply-add. A
float32 number is no byte, but three of them hold what a sum of 64 products needs of it: with e the exponent
of the largest of the 64 numbers,

    x = 2^(e − 21) · (a₀ + 2⁸ a₁ + 2¹⁶ a₂),     a from −128 to 127

is off by 2^(e − 22) at most, an eighth of a millionth of the largest. Products of digits with bytes, and sums
of them, are whole numbers: exact, in whatever order they are made.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation, small_kernel
from unspool.kernels.lanes import (
    CHECKED,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    WIDTH,
    called,
    has,
    pointer,
    spread_lanes,
    whole,
)

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
