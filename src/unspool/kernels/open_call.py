"""A call that other threads may join while it runs, without a word of Python.

To wake a thread that sleeps takes as long as a small model's layer, and Python lets one thread at a time
begin or end a call. So helpers stay in compiled code between the calls of one entry, and look at a board:

    caller   writes down where its arguments lie, opens the call, does its part, closes it, and waits until
             those who have entered have left
    helper   waits until a call is open that it has not seen, enters, finds the call still open, does its part
             with the same arguments, leaves; after a while without any, it goes to sleep

Who comes late finds the call closed, and is not waited for. Arguments lie on the caller's stack; a call tells
their types by a number, and a helper that was compiled for others does not enter.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.kernels.kernel import operation, small_kernel
from unspool.kernels.turns import look_at, offer, pause

LINE = 8
"""Numbers of eight bytes in a line of the cache: what different threads write stands in different ones."""
OPEN, ARGUMENTS, KIND, INSIDE, CALLS, ENOUGH = (LINE * place for place in range(6))
"""Places on a board: the number of the call that is open, or 0; where its arguments lie, and of which types;
how many helpers are in it; how many calls there have been; whether helpers are wanted elsewhere."""
SIZE = LINE * 6
LOOKS = 150_000
"""Looks at a board before a helper goes to sleep: some milliseconds, more than lie between two steps."""
BREATH = 4_000
"""Looks before the processor is offered to another thread."""


def new_board() -> np.ndarray[Any, np.dtype[np.int64]]:
    """One for an entry: nobody is there, and no call is open."""
    return np.zeros(SIZE, np.int64)


def without_memory(argument: Any) -> Any:
    """The same with empty arrays: a helper that waits keeps nothing that was given to a call."""
    if isinstance(argument, np.ndarray):
        return np.empty((0,) * argument.ndim, argument.dtype)
    if isinstance(argument, tuple):
        parts = [without_memory(part) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument


@operation
def _swap(_: Any, board: Any, place: Any, value: Any) -> Any:
    """board[place] = value, before anything that follows is done."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("xchg", builder.gep(data, [args[1]]), args[2], "seq_cst")

    return types.int64(board, types.intp, types.int64), build


@operation
def _count(_: Any, board: Any, place: Any, value: Any) -> Any:
    """board[place] += value, before anything that follows is done; what was there."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "seq_cst")

    return types.int64(board, types.intp, types.int64), build


@operation
def _address(_: Any, call: Any) -> Any:
    """Where the arguments lie: on the stack of the entry, until that returns."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        room = cgutils.alloca_once(builder, context.get_value_type(signature.args[0]))
        builder.store(args[0], room)
        return builder.ptrtoint(room, ir.IntType(64))

    return types.int64(call), build


@operation
def _kind(_: Any, call: Any) -> Any:
    """A number that tells the types of the arguments."""
    number = zlib.crc32(str(call).encode()) + 1
    return types.int64(call), lambda *_: ir.IntType(64)(number)


@operation
def _arguments(_: Any, address: Any, call: Any) -> Any:
    """What lies there, of the types of `call`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[1]
        found = builder.load(builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()))
        if context.enable_nrt:  # by whoever counts references
            context.nrt.incref(builder, kind, found)
        return found

    return call(types.int64, call), build


@small_kernel
def open_to_all(board: Any, call: Any) -> None:
    """Let others join the call with these arguments."""
    _swap(board, ARGUMENTS, _address(call))
    _swap(board, KIND, _kind(call))
    _swap(board, OPEN, _count(board, CALLS, 1) + 1)


@small_kernel
def close(board: Any) -> None:
    """Let nobody in any more, and wait until all have left."""
    _swap(board, OPEN, 0)
    looks = 0
    while look_at(board, INSIDE) > 0:
        looks += 1
        if looks % BREATH == 0:
            offer()


@small_kernel
def enter(board: Any, call: Any, seen: int) -> int:
    """Wait for a call of these types behind the one with the number `seen`, and be in it.

    Returns its number, or 0 where none has come for a while.
    """
    looks = 0
    while looks < LOOKS and look_at(board, ENOUGH) == 0:
        number = look_at(board, OPEN)
        if number > seen:
            _count(board, INSIDE, 1)
            if look_at(board, OPEN) == number and look_at(board, KIND) == _kind(call):
                return number  # type: ignore[no-any-return]
            _count(board, INSIDE, -1)
        looks += 1
        if looks % BREATH == 0:
            offer()
        pause()
    return 0


@small_kernel
def entered(board: Any, call: Any) -> Any:
    """The arguments of the call that one is in, which are of the types of `call`: for kernels alone.

    As a rule these count no references; the caller holds what it has given until all have left.
    """
    return _arguments(look_at(board, ARGUMENTS), call)


@small_kernel
def leave(board: Any) -> None:
    """One's part is done."""
    _count(board, INSIDE, -1)
