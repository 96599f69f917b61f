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

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import models, register_model

from unspool.engine.kernel import inline_kernel, instruction, kernel, memory_instruction


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


# Generators of LLVM code: `builder` and LLVM values → an LLVM value.


def int_constant(value: int) -> ir.Constant:
    """A vector with one integer in all elements."""
    return ir.Constant(INTS, [value] * WIDTH)


def llvm_call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call the LLVM function `name`."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}"), args)


def call_on_vectors(builder: Any, name: str, *args: Any) -> Any:
    """Call the LLVM function `name` on float32 vectors."""
    return llvm_call(builder, f"{name}.v{WIDTH}f32", FLOATS, *args)


def llvm_fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a · b + c of vectors or numbers, rounded once."""
    if not HAS_FMA:
        return builder.fadd(builder.fmul(a, b), c)
    return llvm_call(builder, "fma.f32" if a.type == FLOAT else f"fma.v{WIDTH}f32", a.type, a, b, c)


def llvm_splat(builder: Any, value: Any) -> Any:
    """A vector with one value in all elements."""
    undefined = ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined)
    return builder.shuffle_vector(
        builder.insert_element(undefined, value, INT(0)), undefined, int_constant(0)
    )


def load_as(builder: Any, where: Any, kind: Any, align: int = 4) -> Any:
    """Load a value of this type from a pointer."""
    value = builder.load(builder.bitcast(where, kind.as_pointer()))
    value.align = align
    return value


def store_as(builder: Any, where: Any, value: Any) -> None:
    """Store a value of any type at a pointer."""
    builder.store(value, builder.bitcast(where, value.type.as_pointer()), align=4)


def llvm_prefetch(builder: Any, where: Any) -> None:
    """Prefetch the memory at a pointer into the cache."""
    where = builder.bitcast(where, ir.IntType(8).as_pointer())
    llvm_call(builder, "prefetch.p0", ir.VoidType(), where, INT(0), INT(3), INT(1))


def _exp2(builder: Any, a: Any) -> Any:
    exponent = builder.add(builder.fptosi(a, INTS), int_constant(127))
    return builder.bitcast(builder.shl(exponent, int_constant(23)), FLOATS)


def _choose(builder: Any, comparison: str, a: Any, b: Any, yes: Any, no: Any) -> Any:
    return builder.select(builder.fcmp_ordered(comparison, a, b), yes, no)


def _select_first(builder: Any, a: Any, count: Any, b: Any) -> Any:
    places = ir.Constant(INTS, list(range(WIDTH)))
    counts = llvm_splat(builder, builder.trunc(count, INT))
    return builder.select(builder.icmp_signed("<", places, counts), a, b)


def _reduce(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Reduce a vector to one number: halves, then quarters, … then the last two elements."""
    for half in HALVES:
        order = ir.Constant(INTS, [(element + half) % WIDTH for element in range(WIDTH)])
        vector = combine(
            vector, builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), order)
        )
    return builder.extract_element(vector, INT(0))


def _sum(builder: Any, vector: Any) -> Any:
    return _reduce(builder, vector, builder.fadd)


def _max_element(builder: Any, vector: Any) -> Any:
    return _reduce(builder, vector, lambda x, y: builder.select(builder.fcmp_unordered(">", x, y), x, y))


def vector_instruction(emit: Callable[..., Any], arguments: int) -> Callable[..., Any]:
    """The function of this many vectors that returns a vector."""
    return instruction(emit, VECTOR, *[VECTOR] * arguments)


vadd = vector_instruction(lambda builder, a, b: builder.fadd(a, b), 2)
vmul = vector_instruction(lambda builder, a, b: builder.fmul(a, b), 2)
vdiv = vector_instruction(lambda builder, a, b: builder.fdiv(a, b), 2)
fma = vector_instruction(llvm_fma, 3)
"""a · b + c, rounded once."""
scalar_fma = instruction(llvm_fma, types.float32, *[types.float32] * 3)
"""The same of numbers."""
vmin = vector_instruction(lambda builder, a, b: _choose(builder, "<", a, b, a, b), 2)
"""The minimum of each pair; a NaN in b stays NaN."""
vmax = vector_instruction(lambda builder, a, b: _choose(builder, ">", a, b, a, b), 2)
"""The maximum of each pair; a NaN in b stays NaN."""
vround = vector_instruction(lambda builder, a: call_on_vectors(builder, "rint", a), 1)
"""Round to the nearest integers."""
vexp2 = vector_instruction(_exp2, 1)
"""2^a for integers a from −126 to 127, by writing a into the exponent bits."""
vabs_difference = vector_instruction(
    lambda builder, a, b: call_on_vectors(builder, "fabs", builder.fsub(a, b)), 2
)
"""|a − b|."""
select_ge = vector_instruction(
    lambda builder, x, floor, yes, no: _choose(builder, ">=", x, floor, yes, no), 4
)
"""select_ge(x, floor, yes, no): yes if x ≥ floor, else no (also for NaN)."""
select_first = instruction(_select_first, VECTOR, VECTOR, types.int64, VECTOR)
"""select_first(a, count, b): the first `count` elements of a and the other elements of b."""
splat = instruction(llvm_splat, VECTOR, types.float32)
"""A vector with one number in all elements."""
vsum = instruction(_sum, types.float32, VECTOR)
"""The sum of the elements, in the order of the module docstring."""
vmax_element = instruction(_max_element, types.float32, VECTOR)
"""The largest element."""
first_element = instruction(lambda builder, a: builder.extract_element(a, INT(0)), types.float32, VECTOR)
prefetch = memory_instruction(llvm_prefetch, types.void)
"""Prefetch array[index], which may be outside the array, into the cache."""
_load = memory_instruction(lambda builder, where: load_as(builder, where, FLOATS), VECTOR)
_store = memory_instruction(store_as, types.void, VECTOR)


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


# To visit the elements that reach a threshold (if few do, WIDTH elements cost one comparison):
#
#     bits = ge_mask(x, threshold);   while bits: element = lowest_bit(bits);  bits = bits & (bits − 1)

LONG = ir.IntType(64)


def _ge_mask(builder: Any, x: Any, floor: Any) -> Any:
    is_above = builder.fcmp_ordered(">=", x, floor)
    return builder.zext(builder.bitcast(is_above, ir.IntType(WIDTH)), LONG)


ge_mask = instruction(_ge_mask, types.int64, VECTOR, VECTOR)
"""Bit l is set if x_l ≥ floor_l; false for NaN."""
lowest_bit = instruction(
    lambda builder, bits: llvm_call(builder, "cttz.i64", LONG, bits, ir.IntType(1)(1)),
    types.int64,
    types.int64,
)
"""The index of the lowest set bit; at least one must be set."""


# Sums in float64, one for each element: a float32 sum of 50,000 probabilities has a larger error than some of
# the probabilities.
#
#     s_l = Σ_k x[Wk + l],  l = 0 … W − 1,  k ascending;   sum = Σ_l s_l, reduced like `vsum`

DOUBLES = ir.VectorType(ir.DoubleType(), WIDTH)
DOUBLE_VECTOR = VectorType("DoubleVector", DOUBLES)

zero_sums = instruction(lambda _: ir.Constant(DOUBLES, [0.0] * WIDTH), DOUBLE_VECTOR)
"""WIDTH sums that are 0."""
add_to_sums = instruction(
    lambda builder, sums, vector: builder.fadd(sums, builder.fpext(vector, DOUBLES)),
    DOUBLE_VECTOR,
    DOUBLE_VECTOR,
    VECTOR,
)
"""The sums plus the elements of a float32 vector."""
total_of_sums = instruction(_sum, types.float64, DOUBLE_VECTOR)
"""The sum of the elements, in the order of the module docstring."""


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
