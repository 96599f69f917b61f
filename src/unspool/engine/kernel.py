"""Decorators that compile kernels with numba, and the memory that kernels use.

    @kernel, @inline_kernel           compiled into the kernels and entries that call them
    @entry                            called from Python without the GIL, compiled once and cached on disk
    instruction, memory_instruction   a few LLVM instructions

No option lets the compiler reorder sums: `simd` fixes the order of every sum.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from secrets import token_hex
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

ENTRY_OPTIONS = {"nogil": True, "error_model": "numpy"}

numba_internals: ModuleType | None
try:
    import unspool.engine.numba_internals as known_internals

    numba_internals, KERNEL_OPTIONS = known_internals, {**ENTRY_OPTIONS, **known_internals.KERNEL_OPTIONS}
except (ImportError, AttributeError, TypeError):  # an unknown numba: slower to compile, no disk cache
    numba_internals, KERNEL_OPTIONS = None, ENTRY_OPTIONS

INT64_ZERO: Any = np.int64(0)
"""The start of a counter. numba would compile a function again for each literal constant argument."""


def kernel(function: F) -> F:
    """Compile a function into its callers.

    A kernel does not count references. Do not return an array from a kernel to an entry or to a plain numba
    function: these would release a reference that nothing has taken.
    """
    compiled: F = njit(**KERNEL_OPTIONS)(_named_apart(function))
    return compiled


def inline_kernel(function: F) -> F:
    """Like `kernel`, always inlined."""
    compiled: F = njit(**KERNEL_OPTIONS, forceinline=True)(_named_apart(function))
    return compiled


def _named_apart(function: F) -> F:
    """Give a closure a name that no other has.

    numba numbers functions of one name within a process. Entries on disk may come from different processes,
    and the linker takes functions of one name and number in two entries for one function.
    """
    if function.__closure__ is not None:
        function.__qualname__ += f".{token_hex(8)}"
    return function


def entry(function: F) -> F:
    """Compile a function that Python calls, without the GIL; cached on disk."""
    compiled: F = njit(**ENTRY_OPTIONS, no_cfunc_wrapper=True)(function)
    if numba_internals:
        numba_internals.cache_on_disk(compiled)
    return compiled


def c_callback(signature: Any, function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call by its `address`; cached on disk."""
    options = {"nopython": True, "error_model": "numpy"}
    cached = numba_internals.cached_callback(signature, function, options) if numba_internals else None
    return cached or cfunc(signature, **options)(function)


def llvm_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is LLVM instructions (numba's `intrinsic`)."""
    compiled: Callable[..., Any] = intrinsic(function)
    return compiled


def instruction(emit: Callable[..., Any], result: Any, *arguments: Any) -> Callable[..., Any]:
    """The function of these numba types whose body is emit(builder, *LLVM values)."""

    def definition(_: Any, *__: Any) -> Any:
        def build(context: Any, builder: Any, __: Any, values: Any) -> Any:
            value = emit(builder, *values)
            return context.get_dummy_value() if result is types.void else value

        return result(*arguments), build

    return _fixed_arity_intrinsic(definition, len(arguments))


def memory_instruction(emit: Callable[..., Any], result: Any, *arguments: Any) -> Callable[..., Any]:
    """The function of (array, index, *arguments) whose body is emit(builder, pointer to array[index], …)."""

    def definition(_: Any, array: Any, *__: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, values[0]).data
            value = emit(builder, builder.gep(data, [values[1]]), *values[2:])
            return context.get_dummy_value() if result is types.void else value

        return result(array, types.intp, *arguments), build

    return _fixed_arity_intrinsic(definition, 2 + len(arguments))


def _fixed_arity_intrinsic(definition: Any, arity: int) -> Callable[..., Any]:
    """numba reads the arity of an intrinsic from its signature."""
    names = ["context", *(f"argument_{i}" for i in range(arity))]
    definition.__signature__ = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in names])
    return llvm_intrinsic(definition)


def _call_address(builder: Any, address: Any, *values: Any) -> None:
    function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(values))
    builder.call(builder.inttoptr(address, function.as_pointer()), values)


call_address = instruction(_call_address, types.void, *[types.int64] * 9)
"""Call the void function of eight int64 at an address, so that many kernels share one compiled function."""


# ── arrays at an address: memory of torch or of a mapped file, which the caller keeps alive ──────


def _array_at(dtype: Any) -> Any:
    kind = types.Array(dtype, 1, "C")

    def build(context: Any, builder: Any, _: Any, args: Any) -> Any:
        address, size = args
        array = context.make_array(kind)(context, builder)
        itemsize = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        array.data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
        array.shape, array.strides = (cgutils.pack_array(builder, [it]) for it in (size, itemsize))
        array.itemsize, array.nitems = itemsize, size
        return array._getvalue()  # meminfo and parent are null: the array does not own its memory

    @llvm_intrinsic
    def array_at(_: Any, address: Any, size: Any) -> Any:
        return kind(types.int64, types.int64), build

    return array_at


floats_at = _array_at(types.float32)
"""The float32 array at (address, size)."""
ints_at = _array_at(types.int64)
"""The int64 array at an address."""
bytes_at = _array_at(types.uint8)
"""The uint8 array at (address, size)."""
uint16_at = _array_at(types.uint16)
"""The uint16 array at (address, size)."""


def _stack_alloc(builder: Any, size: Any) -> Any:
    memory = builder.alloca(ir.FloatType(), size)
    memory.align = 64
    return builder.ptrtoint(memory, ir.IntType(64))


stack_alloc = instruction(_stack_alloc, types.int64, types.int64)
"""The address of so many float32 on this thread's stack, valid until the calling kernel returns.

    tile = floats_at(stack_alloc(size), size)

Do not pass a literal size: LLVM would split the memory into single numbers.
"""
