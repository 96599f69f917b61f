"""Numbers that are worked on at once: the unit in which every compiled kernel counts.

They are WIDTH, as many float32 as a register of this processor holds: 16 with AVX-512, else 8.

A sum of many products depends, in its last bits, on the order in which it is made. Compilers choose that
order anew for every loop they vectorise; here it is written down, so that a row's sums are the same bits
alone and among others. A dot product is, with W for WIDTH,

    s_l = Σ_k a[Wk + l] · b[Wk + l],  l = 0 … W − 1,   each step one fused multiply-add, k rising
    sum = of eight ((s_0 + s_4) + (s_2 + s_6)) + ((s_1 + s_5) + (s_3 + s_7)), of sixteen their halves first;
          then what is left over, one by one

`LANES` is a type of numba's own kind (a vector register of the processor), `load`, `fma` and the others are
single instructions of LLVM. Where there is no such instruction, LLVM makes it of smaller ones, with the same
result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import models, register_model

from unspool.engine.kernel import kernel, operation, small_kernel


def has(feature: str) -> bool:
    """Whether the processor that numba compiles for can do this: the one at hand, or NUMBA_CPU_FEATURES.

    With NUMBA_CPU_NAME alone numba compiles for the features of the processor at hand, too.
    """
    named = config.CPU_FEATURES
    if named is None:
        return bool(binding.get_host_cpu_features().get(feature))
    return f"+{feature}" in named.split(",")


WIDTH = 16 if has("avx512f") else 8
CHECKED = bool(config.BOUNDSCHECK)
"""numba's own NUMBA_BOUNDSCHECK=1: loads and stores of lanes are then looked at, as single numbers are."""

FLOAT, INT = ir.FloatType(), ir.IntType(32)
HALVES = tuple(half for half in (8, 4, 2, 1) if half < WIDTH)
FLOATS, INTS = ir.VectorType(FLOAT, WIDTH), ir.VectorType(INT, WIDTH)


def has_instruction(feature: str) -> bool:
    """Whether the processor has an instruction that not every one of Intel's kind has, and all others do."""
    machine = binding.get_default_triple().split("-")[0]
    return machine not in ("x86_64", "i686") or has(feature)


FUSES = has_instruction("fma")
"""Whether multiply-add is one instruction here: without it, LLVM would call a slow function for each."""


class Register(types.Type):  # type: ignore[misc]
    """numba's type of WIDTH numbers of one kind, in a register or two of the processor."""

    def __init__(self, name: str, vector: ir.VectorType) -> None:
        super().__init__(name)
        self.vector = vector


@register_model(Register)
class RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    """What LLVM knows it as."""

    def __init__(self, dmm: Any, fe_type: Register) -> None:
        super().__init__(dmm, fe_type, fe_type.vector)


LANES = Register("Lanes", FLOATS)


def whole(value: int) -> ir.Constant:
    """One whole number in all lanes."""
    return ir.Constant(INTS, [value] * WIDTH)


def called(builder: Any, name: str, *args: Any) -> Any:
    """LLVM's own function `name` of lanes."""
    kind = ir.FunctionType(args[0].type, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{WIDTH}f32")
    return builder.call(function, args)


def fused_lanes(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c of values of LLVM."""
    return called(builder, "fma", a, b, c) if FUSES else builder.fadd(builder.fmul(a, b), c)


def pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, to: Any) -> Any:
    """Where `array[index]` lies, as a pointer to `to`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), to.as_pointer())


@operation
def _load(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], FLOATS))
        found.align = 4
        return found

    return LANES(array, types.intp), build


@operation
def _store(_: Any, array: Any, index: Any, lanes: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(
            args[2], pointer(context, builder, signature.args[0], args[0], args[1], FLOATS), align=4
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), build


@small_kernel
def load(array: Any, index: int) -> Any:
    """array[index : index + WIDTH]."""
    if CHECKED and (index < 0 or index + WIDTH > array.size):
        raise IndexError("numbers are read outside an array")
    return _load(array, index)


@small_kernel
def store(array: Any, index: int, lanes: Any) -> None:
    """array[index : index + WIDTH] = lanes."""
    if CHECKED and (index < 0 or index + WIDTH > array.size):
        raise IndexError("numbers are written outside an array")
    _store(array, index, lanes)


def spread_lanes(builder: Any, value: Any) -> Any:
    """One number in all lanes, of a value of LLVM."""
    kind = ir.VectorType(value.type, WIDTH)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), whole(0))


@operation
def spread(_: Any, value: Any) -> Any:
    """One number in all lanes."""
    return LANES(types.float32), lambda _, builder, __, args: spread_lanes(builder, args[0])


@operation
def fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return fused_lanes(builder, *args)

    return LANES(a, b, c), build


@operation
def plus(_: Any, a: Any, b: Any) -> Any:
    """a + b."""
    return LANES(a, b), lambda _, builder, __, args: builder.fadd(*args)


@operation
def times(_: Any, a: Any, b: Any) -> Any:
    """a · b."""
    return LANES(a, b), lambda _, builder, __, args: builder.fmul(*args)


@operation
def over(_: Any, a: Any, b: Any) -> Any:
    """a / b."""
    return LANES(a, b), lambda _, builder, __, args: builder.fdiv(*args)


@operation
def nearest(_: Any, a: Any) -> Any:
    """The nearest whole numbers."""
    return LANES(a), lambda _, builder, __, args: called(builder, "rint", args[0])


@operation
def two_to_the(_: Any, a: Any) -> Any:
    """2^a for whole numbers a from −126 to 127: their bits are the exponent of a float32."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        exponent = builder.add(builder.fptosi(args[0], INTS), whole(127))
        return builder.bitcast(builder.shl(exponent, whole(23)), FLOATS)

    return LANES(a), build


def fetch(builder: Any, where: Any) -> None:
    """Ask for what a pointer of LLVM points to: it will be wanted soon."""
    kind = ir.FunctionType(ir.VoidType(), [where.type, INT, INT, INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [where, INT(0), INT(3), INT(1)])


@operation
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Ask for array[index], which may lie outside, to be fetched from memory: it will be wanted soon."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        fetch(builder, pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@operation
def lower(_: Any, a: Any, b: Any) -> Any:
    """The lower of each pair; a NaN in b stays one."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return LANES(a, b), build


@operation
def higher(_: Any, a: Any, b: Any) -> Any:
    """The higher of each pair; a NaN in b stays one."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return LANES(a, b), build


@operation
def only_first(_: Any, a: Any, count: Any, b: Any) -> Any:
    """The first `count` lanes of a, and of b the others."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        lanes, count, others = args
        places = ir.Constant(INTS, list(range(WIDTH)))
        one = builder.insert_element(ir.Constant(INTS, ir.Undefined), builder.trunc(count, INT), INT(0))
        counts = builder.shuffle_vector(one, ir.Constant(INTS, ir.Undefined), whole(0))
        return builder.select(builder.icmp_signed("<", places, counts), lanes, others)

    return LANES(a, types.int64, b), build


def folded(builder: Any, lanes: Any, joined: Any) -> Any:
    """All lanes made one: halves with halves, quarters with quarters, then the last two."""
    for half in HALVES:
        order = ir.Constant(INTS, [(lane + half) % WIDTH for lane in range(WIDTH)])
        lanes = joined(lanes, builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), order))
    return builder.extract_element(lanes, ir.Constant(INT, 0))


@operation
def total(_: Any, a: Any) -> Any:
    """The sum of all, in the one order that the file's head gives."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return folded(builder, args[0], builder.fadd)

    return types.float32(a), build


@operation
def first(_: Any, a: Any) -> Any:
    """The first of them."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.extract_element(args[0], ir.Constant(INT, 0))

    return types.float32(a), build


@operation
def highest(_: Any, a: Any) -> Any:
    """The highest of them."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        def joined(x: Any, y: Any) -> Any:
            return builder.select(builder.fcmp_unordered(">", x, y), x, y)

        return folded(builder, args[0], joined)

    return types.float32(a), build


@operation
def fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c of single numbers, rounded once."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        if not FUSES:
            return builder.fadd(builder.fmul(args[0], args[1]), args[2])
        kind = ir.FunctionType(FLOAT, [FLOAT] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), args)

    return types.float32(types.float32, types.float32, types.float32), build


# Numbers in a row copied, or added to others, WIDTH at a time.
#
# A compiler does so by itself only where it sees that the two arrays are not the same memory; where it
# cannot, it takes one number after another, ten times as long.


@kernel
def copy(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] = x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, load(x, at + i))
    for i in range(even, size):
        y[to + i] = x[at + i]


@kernel
def add(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] += x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, plus(load(y, to + i), load(x, at + i)))
    for i in range(even, size):
        y[to + i] += x[at + i]


# Which of WIDTH numbers reach a floor: as bits to walk through, or as a choice between two numbers.
#
#     bits = reaching(x, floor);   while bits: lane = lowest(bits), bits = bits & (bits − 1)
#
# Where few of many numbers are wanted, most of the walks are empty, and WIDTH numbers cost one comparison.


LONG = ir.IntType(64)


@operation
def reaching(_: Any, x: Any, floor: Any) -> Any:
    """Bit l is set where x_l ≥ floor_l; a NaN reaches nothing."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        chosen = builder.fcmp_ordered(">=", args[0], args[1])
        return builder.zext(builder.bitcast(chosen, ir.IntType(WIDTH)), LONG)

    return types.int64(x, floor), build


@operation
def lowest(_: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; there must be one."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kind = ir.FunctionType(LONG, [LONG, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [args[0], ir.IntType(1)(1)])

    return types.int64(types.int64), build


@operation
def either(_: Any, x: Any, floor: Any, yes: Any, no: Any) -> Any:
    """yes where x ≥ floor, and no elsewhere (where one of them is NaN, too)."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", args[0], args[1]), args[2], args[3])

    return LANES(x, floor, yes, no), build


@operation
def distance(_: Any, a: Any, b: Any) -> Any:
    """|a − b|."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return called(builder, "fabs", builder.fsub(*args))

    return LANES(a, b), build


# Sums in double precision, one for each lane: what WIDTH numbers at a time are added to.
#
#     s_l = Σ_k x[Wk + l],  l = 0 … W − 1,  k rising;   sum = Σ_l s_l, halves with halves as in `lanes`
#
# A sum of 50,000 probabilities in single precision is off by more than some of them weigh.


DOUBLE = ir.DoubleType()
DOUBLES = ir.VectorType(DOUBLE, WIDTH)
SUMS = Register("Doubles", DOUBLES)


@operation
def nothing(_: Any) -> Any:
    """Sums of nothing."""
    return SUMS(), lambda *_: ir.Constant(DOUBLES, [0.0] * WIDTH)


@operation
def added(_: Any, sums: Any, lanes: Any) -> Any:
    """The sums with as many numbers added, one to each."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fadd(args[0], builder.fpext(args[1], DOUBLES))

    return SUMS(sums, lanes), build


@operation
def summed(_: Any, sums: Any) -> Any:
    """The sum of all, in the one order that the file's head gives."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return folded(builder, args[0], builder.fadd)

    return types.float64(sums), build


# e^x of many numbers at once, and what activations make of it.
#
#     e^x = 2^n · e^r,   n = round(x / ln 2),   r = x − n ln 2,   |r| ≤ ln 2 / 2
#
# e^r is a polynomial of degree 6, and ln 2 comes in two parts so that r loses nothing (Cephes' `expf`): right
# to about one unit in the last place. Below −87 it stays at e^−87, above 88 at e^88; NaN stays NaN.


LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
PER_LN2 = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
C = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0e-1)
)
ONE = np.float32(1)


@kernel
def exp(x: Any) -> Any:
    """e^x."""
    x = lower(spread(HIGHEST), higher(spread(LOWEST), x))
    n = nearest(times(x, spread(PER_LN2)))
    r = fma(n, spread(LN2_LOW), fma(n, spread(LN2_HIGH), x))
    p = fma(spread(C[0]), r, spread(C[1]))
    p = fma(p, r, spread(C[2]))
    p = fma(p, r, spread(C[3]))
    p = fma(p, r, spread(C[4]))
    p = fma(p, r, spread(C[5]))
    p = plus(fma(p, times(r, r), r), spread(ONE))
    return times(p, two_to_the(n))


@kernel
def tanh(x: Any) -> Any:
    """(e^2x − 1) / (e^2x + 1), as 1 − 2 / (e^2x + 1): right to about 1e-7, absolutely."""
    grown = plus(exp(plus(x, x)), spread(ONE))
    return plus(spread(ONE), over(spread(np.float32(-2)), grown))


@kernel
def sigmoid_times(x: Any, slope: Any) -> Any:
    """x / (1 + e^−slope): silu where slope is x."""
    return over(x, plus(spread(ONE), exp(times(slope, spread(-ONE)))))
