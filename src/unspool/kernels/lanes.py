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

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import models, register_model

from unspool.kernels.kernel import operation, small_kernel


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
