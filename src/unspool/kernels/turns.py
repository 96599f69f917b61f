"""How several threads share the work of a step: by turns.

A step is a sequence of phases (a norm, a product …), each cut into pieces that do not need one another.
Every thread walks through all phases; in each it takes the next piece that nobody has taken until there is
none, and goes on when all pieces are finished. `turns` holds two counters a phase, pieces taken and pieces
finished, and is new for every step: a thread that comes late finds nothing left to take, and one that never
comes is not missed. What a piece computes does not depend on who computes it, so that any number of threads
gives the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation, small_kernel

PATIENCE = 4000
"""Looks at a counter before the processor is offered to another thread."""


@operation
def _add(_: Any, array: Any, index: Any) -> Any:
    """array[index] += 1 as one act; what was there before."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), ir.IntType(64)(1), "acq_rel")

    return types.int64(array, types.intp), build


@operation
def look_at(_: Any, array: Any, index: Any) -> Any:
    """array[index] as it is now, whoever wrote it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(builder.gep(data, [args[1]]), "acquire", 8)

    return types.int64(array, types.intp), build


@operation
def pause(_: Any) -> Any:
    """A moment of rest between two looks, where the processor has an instruction for it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if binding.get_default_triple().startswith("x86_64"):
            rest = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            )
            builder.call(rest, [])
        return context.get_dummy_value()

    return types.void(), build


if sys.platform == "win32":

    @small_kernel
    def offer() -> None:
        """Windows lets another thread run in its own time."""

else:
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @small_kernel
    def offer() -> None:
        """Let another thread run."""
        _sched_yield()


@small_kernel
def take(turns: Any, phase: int) -> int:
    """The number of a piece that nobody else has; there is none left if it is not below their number."""
    return _add(turns, 2 * phase)  # type: ignore[no-any-return]


@small_kernel
def finish(turns: Any, phase: int) -> int:
    """Say that a piece is done, and take another."""
    _add(turns, 2 * phase + 1)
    return _add(turns, 2 * phase)  # type: ignore[no-any-return]


@small_kernel
def meet(turns: Any, phase: int, pieces: int) -> int:
    """Wait until all pieces of this phase are done; the next phase's number."""
    looks = 0
    while look_at(turns, 2 * phase + 1) < pieces:
        looks += 1
        if looks % PATIENCE == 0:
            offer()
    return phase + 1
