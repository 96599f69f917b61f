"""SIMD vectors for numba kernels: WIDTH float32 that are computed at once, with a fixed order of every sum.

WIDTH is the number of float32 in a vector register: 16 with AVX-512, else 8.

The last bits of a sum depend on its order. Compilers choose an order for every loop that they vectorise; here
the order is explicit, so that a row's sums are bit-identical alone and in any batch. A dot product is, with W
for WIDTH,

    s_l = Σ_k a[Wk + l] · b[Wk + l],  l = 0 … W − 1,   each step one fused multiply-add, k ascending
    sum = of eight ((s_0 + s_4) + (s_2 + s_6)) + ((s_1 + s_5) + (s_3 + s_7)), of sixteen their halves first;
          then the remaining elements one by one

`VECTOR` is a numba type for a vector register; `load`, `fma` and the others are single LLVM instructions. If
a processor lacks one, LLVM emits smaller instructions with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import models, register_model

from unspool.engine.kernel import inline_kernel, kernel, llvm_intrinsic


def cpu_has(feature: str) -> bool:
    """True if the target processor has a feature: NUMBA_CPU_FEATURES if that is set, else this processor.

    With NUMBA_CPU_NAME alone numba compiles for the features of this processor, too.
    """
    features = config.CPU_FEATURES
    if features is None:
        return bool(binding.get_host_cpu_features().get(feature))
    return f"+{feature}" in features.split(",")


WIDTH = 16 if cpu_has("avx512f") else 8
BOUNDSCHECK = bool(config.BOUNDSCHECK)
"""numba's NUMBA_BOUNDSCHECK=1: loads and stores of vectors are then checked, like those of single numbers."""

FLOAT, INT = ir.FloatType(), ir.IntType(32)
HALVES = tuple(half for half in (8, 4, 2, 1) if half < WIDTH)
FLOATS, INTS = ir.VectorType(FLOAT, WIDTH), ir.VectorType(INT, WIDTH)


def has_instruction(feature: str) -> bool:
    """True if the processor has an instruction that is optional on x86 and present everywhere else."""
    machine = binding.get_default_triple().split("-")[0]
    return machine not in ("x86_64", "i686") or cpu_has(feature)


HAS_FMA = has_instruction("fma")
"""Whether fused multiply-add is one instruction; otherwise LLVM would call a slow function for each."""


class VectorType(types.Type):  # type: ignore[misc]
    """numba's type of WIDTH numbers in one or two vector registers."""

    def __init__(self, name: str, vector: ir.VectorType) -> None:
        super().__init__(name)
        self.vector = vector


@register_model(VectorType)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """The LLVM representation of a `VectorType`."""

    def __init__(self, dmm: Any, fe_type: VectorType) -> None:
        super().__init__(dmm, fe_type, fe_type.vector)


VECTOR = VectorType("FloatVector", FLOATS)


def int_constant(value: int) -> ir.Constant:
    """A vector with one integer in all elements."""
    return ir.Constant(INTS, [value] * WIDTH)


def call_llvm(builder: Any, name: str, *args: Any) -> Any:
    """Call the LLVM function `name` on vectors."""
    kind = ir.FunctionType(args[0].type, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{WIDTH}f32")
    return builder.call(function, args)


def llvm_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c of LLVM values."""
    return call_llvm(builder, "fma", a, b, c) if HAS_FMA else builder.fadd(builder.fmul(a, b), c)


def pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, to: Any) -> Any:
    """A pointer to array[index], of type `to`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), to.as_pointer())


@llvm_intrinsic
def _load(_: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], FLOATS))
        vector.align = 4
        return vector

    return VECTOR(array, types.intp), build


@llvm_intrinsic
def _store(_: Any, array: Any, index: Any, vector: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(
            args[2], pointer(context, builder, signature.args[0], args[0], args[1], FLOATS), align=4
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), build


@inline_kernel
def load(array: Any, index: int) -> Any:
    """array[index : index + WIDTH]."""
    if BOUNDSCHECK and (index < 0 or index + WIDTH > array.size):
        raise IndexError("a vector is read outside an array")
    return _load(array, index)


@inline_kernel
def store(array: Any, index: int, vector: Any) -> None:
    """array[index : index + WIDTH] = vector."""
    if BOUNDSCHECK and (index < 0 or index + WIDTH > array.size):
        raise IndexError("a vector is written outside an array")
    _store(array, index, vector)


def llvm_splat(builder: Any, value: Any) -> Any:
    """A vector with one LLVM value in all elements."""
    kind = ir.VectorType(value.type, WIDTH)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), int_constant(0))


@llvm_intrinsic
def splat(_: Any, value: Any) -> Any:
    """A vector with one number in all elements."""
    return VECTOR(types.float32), lambda _, builder, __, args: llvm_splat(builder, args[0])


@llvm_intrinsic
def fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return llvm_fma(builder, *args)

    return VECTOR(a, b, c), build


@llvm_intrinsic
def vadd(_: Any, a: Any, b: Any) -> Any:
    """a + b."""
    return VECTOR(a, b), lambda _, builder, __, args: builder.fadd(*args)


@llvm_intrinsic
def vmul(_: Any, a: Any, b: Any) -> Any:
    """a · b."""
    return VECTOR(a, b), lambda _, builder, __, args: builder.fmul(*args)


@llvm_intrinsic
def vdiv(_: Any, a: Any, b: Any) -> Any:
    """a / b."""
    return VECTOR(a, b), lambda _, builder, __, args: builder.fdiv(*args)


@llvm_intrinsic
def vround(_: Any, a: Any) -> Any:
    """Round to the nearest integers."""
    return VECTOR(a), lambda _, builder, __, args: call_llvm(builder, "rint", args[0])


@llvm_intrinsic
def vexp2(_: Any, a: Any) -> Any:
    """2^a for integers a from −126 to 127, by writing a into the exponent bits."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        exponent = builder.add(builder.fptosi(args[0], INTS), int_constant(127))
        return builder.bitcast(builder.shl(exponent, int_constant(23)), FLOATS)

    return VECTOR(a), build


def llvm_prefetch(builder: Any, where: Any) -> None:
    """Prefetch the memory at an LLVM pointer into the cache."""
    kind = ir.FunctionType(ir.VoidType(), [where.type, INT, INT, INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [where, INT(0), INT(3), INT(1)])


@llvm_intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Prefetch array[index], which may be outside the array, into the cache."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        llvm_prefetch(builder, pointer(context, builder, signature.args[0], args[0], args[1], ir.IntType(8)))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@llvm_intrinsic
def vmin(_: Any, a: Any, b: Any) -> Any:
    """The minimum of each pair; a NaN in b stays NaN."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return VECTOR(a, b), build


@llvm_intrinsic
def vmax(_: Any, a: Any, b: Any) -> Any:
    """The maximum of each pair; a NaN in b stays NaN."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return VECTOR(a, b), build


@llvm_intrinsic
def select_first(_: Any, a: Any, count: Any, b: Any) -> Any:
    """The first `count` elements of a and the other elements of b."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        first, count, others = args
        places = ir.Constant(INTS, list(range(WIDTH)))
        one = builder.insert_element(ir.Constant(INTS, ir.Undefined), builder.trunc(count, INT), INT(0))
        counts = builder.shuffle_vector(one, ir.Constant(INTS, ir.Undefined), int_constant(0))
        return builder.select(builder.icmp_signed("<", places, counts), first, others)

    return VECTOR(a, types.int64, b), build


def llvm_reduce(builder: Any, vector: Any, combine: Any) -> Any:
    """Reduce a vector to one number: halves, then quarters, … then the last two elements."""
    for half in HALVES:
        order = ir.Constant(INTS, [(element + half) % WIDTH for element in range(WIDTH)])
        vector = combine(
            vector, builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), order)
        )
    return builder.extract_element(vector, ir.Constant(INT, 0))


@llvm_intrinsic
def vsum(_: Any, a: Any) -> Any:
    """The sum of the elements, in the order of the module docstring."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return llvm_reduce(builder, args[0], builder.fadd)

    return types.float32(a), build


@llvm_intrinsic
def first_element(_: Any, a: Any) -> Any:
    """The first element."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.extract_element(args[0], ir.Constant(INT, 0))

    return types.float32(a), build


@llvm_intrinsic
def vmax_element(_: Any, a: Any) -> Any:
    """The largest element."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        def maximum(x: Any, y: Any) -> Any:
            return builder.select(builder.fcmp_unordered(">", x, y), x, y)

        return llvm_reduce(builder, args[0], maximum)

    return types.float32(a), build


@llvm_intrinsic
def scalar_fma(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c of numbers, rounded once."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        if not HAS_FMA:
            return builder.fadd(builder.fmul(args[0], args[1]), args[2])
        kind = ir.FunctionType(FLOAT, [FLOAT] * 3)
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f32"), args)

    return types.float32(types.float32, types.float32, types.float32), build


# Copies and sums of arrays. The compiler vectorises these loops only if it can prove that the two arrays do
# not overlap; otherwise it takes one number after another, which is ten times slower.


@kernel
def copy_floats(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] = x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, load(x, at + i))
    for i in range(even, size):
        y[to + i] = x[at + i]


@kernel
def add_floats(x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to : to + size] += x[at : at + size]."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, vadd(load(y, to + i), load(x, at + i)))
    for i in range(even, size):
        y[to + i] += x[at + i]


# Comparisons. To visit the elements that reach a threshold (if few do, WIDTH elements cost one comparison):
#
#     bits = ge_mask(x, threshold);   while bits: element = lowest_bit(bits);  bits = bits & (bits − 1)


LONG = ir.IntType(64)


@llvm_intrinsic
def ge_mask(_: Any, x: Any, floor: Any) -> Any:
    """Bit l is set if x_l ≥ floor_l; false for NaN."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        chosen = builder.fcmp_ordered(">=", args[0], args[1])
        return builder.zext(builder.bitcast(chosen, ir.IntType(WIDTH)), LONG)

    return types.int64(x, floor), build


@llvm_intrinsic
def lowest_bit(_: Any, bits: Any) -> Any:
    """The index of the lowest set bit; at least one must be set."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kind = ir.FunctionType(LONG, [LONG, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(function, [args[0], ir.IntType(1)(1)])

    return types.int64(types.int64), build


@llvm_intrinsic
def select_ge(_: Any, x: Any, floor: Any, yes: Any, no: Any) -> Any:
    """yes if x ≥ floor, else no (also for NaN)."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", args[0], args[1]), args[2], args[3])

    return VECTOR(x, floor, yes, no), build


@llvm_intrinsic
def vabs_difference(_: Any, a: Any, b: Any) -> Any:
    """|a − b|."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return call_llvm(builder, "fabs", builder.fsub(*args))

    return VECTOR(a, b), build


# Sums in float64, one for each element: a float32 sum of 50,000 probabilities has a larger error than some of
# the probabilities.
#
#     s_l = Σ_k x[Wk + l],  l = 0 … W − 1,  k ascending;   sum = Σ_l s_l, reduced like `vsum`


DOUBLE = ir.DoubleType()
DOUBLES = ir.VectorType(DOUBLE, WIDTH)
DOUBLE_VECTOR = VectorType("DoubleVector", DOUBLES)


@llvm_intrinsic
def zero_sums(_: Any) -> Any:
    """WIDTH sums that are 0."""
    return DOUBLE_VECTOR(), lambda *_: ir.Constant(DOUBLES, [0.0] * WIDTH)


@llvm_intrinsic
def add_to_sums(_: Any, sums: Any, vector: Any) -> Any:
    """The sums plus the elements of a float32 vector."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fadd(args[0], builder.fpext(args[1], DOUBLES))

    return DOUBLE_VECTOR(sums, vector), build


@llvm_intrinsic
def total_of_sums(_: Any, sums: Any) -> Any:
    """The sum of the elements, in the order of the module docstring."""

    def build(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return llvm_reduce(builder, args[0], builder.fadd)

    return types.float64(sums), build


# The exponential function and activations:
#
#     e^x = 2^n · e^r,   n = round(x / ln 2),   r = x − n ln 2,   |r| ≤ ln 2 / 2
#
# e^r is a polynomial of degree 6, and ln 2 is split in two parts so that r is exact (Cephes' `expf`). The
# error is about one unit in the last place. Below −87 the result is e^−87, above 88 it is e^88; NaN stays
# NaN.


MIN_EXPONENT, MAX_EXPONENT = np.float32(-87.0), np.float32(88.0)
INVERSE_LN2 = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(-0.693359375), np.float32(2.12194440e-4)
EXP_COEFFICIENTS = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0e-1)
)
ONE = np.float32(1)


@kernel
def vexp(x: Any) -> Any:
    """e^x."""
    x = vmin(splat(MAX_EXPONENT), vmax(splat(MIN_EXPONENT), x))
    n = vround(vmul(x, splat(INVERSE_LN2)))
    r = fma(n, splat(LN2_LOW), fma(n, splat(LN2_HIGH), x))
    p = fma(splat(EXP_COEFFICIENTS[0]), r, splat(EXP_COEFFICIENTS[1]))
    p = fma(p, r, splat(EXP_COEFFICIENTS[2]))
    p = fma(p, r, splat(EXP_COEFFICIENTS[3]))
    p = fma(p, r, splat(EXP_COEFFICIENTS[4]))
    p = fma(p, r, splat(EXP_COEFFICIENTS[5]))
    p = vadd(fma(p, vmul(r, r), r), splat(ONE))
    return vmul(p, vexp2(n))


@kernel
def vtanh(x: Any) -> Any:
    """1 − 2 / (e^2x + 1); the absolute error is about 1e-7."""
    denominator = vadd(vexp(vadd(x, x)), splat(ONE))
    return vadd(splat(ONE), vdiv(splat(np.float32(-2)), denominator))


@kernel
def vmul_sigmoid(x: Any, slope: Any) -> Any:
    """x · sigmoid(slope) = x / (1 + e^−slope); SiLU if slope is x."""
    return vdiv(x, vadd(splat(ONE), vexp(vmul(slope, splat(-ONE)))))
