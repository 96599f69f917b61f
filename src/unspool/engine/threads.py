"""How several threads share the work of a step: by turns.

A step is a sequence of phases (a norm, a product …), each cut into pieces that do not need one another.
Every thread walks through all phases; in each it takes the next piece that nobody has taken until there is
none, and goes on when all pieces are finished. `turns` holds two counters a phase, pieces taken and pieces
finished, and is new for every step: a thread that comes late finds nothing left to take, and one that never
comes is not missed. What a piece computes does not depend on who computes it, so that any number of threads
gives the same bits.
"""

from __future__ import annotations

import os
import sys
import threading
import zlib
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from unspool.engine.kernel import operation, small_kernel
from unspool.engine.simd import CHECKED

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


# A call that other threads may join while it runs, without a word of Python.
#
# To wake a thread that sleeps takes as long as a small model's layer, and Python lets one thread at a time
# begin or end a call. So helpers stay in compiled code between the calls of one entry, and look at a board:
#
#     caller   writes down where its arguments lie, opens the call, does its part, closes it, and waits until
#              those who have entered have left
#     helper  waits for an open call that it has not seen, enters, finds it still open, does its part
#              with the same arguments, leaves; after a while without any, it goes to sleep
#
# Who comes late finds the call closed, and is not waited for. Arguments lie on the caller's stack; a call
# tells their types by a number, and a helper that was compiled for others does not enter.


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


Board = NDArray[np.int64]
Call = tuple[Board | None, Callable[..., Any], tuple[Any, ...]]

boards: list[Board] = []
"""All there are."""


class Helper:
    """A thread that makes the calls that it is given.

    Threads that help with a step, and sleep between two texts.

    They call the same compiled function with the same arguments as the thread that decodes (`turns` says who
    does what), which never waits for a helper that has not come. Where steps follow each other closely,
    helpers stay in compiled code from one to the next (`open_call`). torch's own threads are left alone.
    """

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[Call] = SimpleQueue()
        self.at: Board | None = None
        """The board that it looks at now."""
        threading.Thread(target=self._help, name=name, daemon=True).start()

    def _help(self) -> None:
        while True:
            self.at, function, args = self.calls.get()
            function(*args)
            self.at = None
            del function, args  # a sleeping helper keeps no model alive

    def give(self, board: Board | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Let it make this call, as soon as it has left the board that it is at."""
        now = self.at
        if now is not None:
            now[ENOUGH] = 1
        self.calls.put((board, function, args))


_helpers: list[Helper] = []
_hiring = threading.Lock()


def _hire(helpers: int) -> None:
    with _hiring:
        while len(_helpers) < helpers:
            _helpers.append(Helper(f"unspool-{len(_helpers) + 1}"))


def together(threads: int, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` in this thread and in `threads` − 1 helpers; return when it is done here."""
    if CHECKED:
        threads = 1  # an error that a helper found would be lost, and its piece with it
    if threads > len(_helpers) + 1:
        _hire(threads - 1)
    for helper in _helpers[: threads - 1]:
        helper.give(None, function, args)
    function(*args)


def stay(helpers: int, board: Board, function: Callable[..., Any], *args: Any) -> None:
    """Let so many helpers be at a board: in a call that ends when nothing has happened there for a while."""
    if helpers > len(_helpers):
        _hire(helpers)
    board[ENOUGH] = 0
    for helper in _helpers[:helpers]:
        if helper.at is not board and helper.calls.empty():
            helper.give(board, function, args)


def _after_fork() -> None:
    """A child process has none of its parent's threads, and nobody is at its boards."""
    global _hiring
    _helpers.clear()
    _hiring = threading.Lock()
    for board in boards:
        board[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
