"""A thread pool for compiled kernels: a work queue within a step, and a rendezvous between steps.

**Work queue.** A step is a sequence of phases (a norm, a matrix product …), each cut into independent chunks.
Every thread passes through all phases. In each phase it claims chunks until none is left, then waits at the
barrier until all chunks are complete. `queue` holds two counters per phase, claimed and completed chunks, and
is new for every step. A late thread finds no chunks, and nothing waits for a thread that never arrives. The
result of a chunk does not depend on its thread, so any number of threads computes the same bits.

**Rendezvous.** Waking a sleeping thread costs as much as one layer of a small model, and only one thread at a
time can enter or leave Python. So worker threads stay inside the compiled entry between calls and spin on a
mailbox. After IDLE_NANOSECONDS without a call they return to Python and sleep.

    caller   writes the address and types of its arguments, opens the call, works, closes the call, and waits
             until all workers that joined have left
    worker   waits for an open call with a new number, joins, checks that the call is still open, works with
             the caller's arguments, leaves

**Memory order** (that of C++ and LLVM). A worker announces itself (seq_cst add to WORKERS_INSIDE) before it
checks that the call is still open (seq_cst load of OPEN_CALL). The caller closes the call (seq_cst exchange
of OPEN_CALL) before it checks for announced workers (seq_cst load of WORKERS_INSIDE). All four are in one
total order, so one of the two sees the other: either the worker finds the call closed and leaves, or the
caller waits for it. With acquire and release alone both could miss each other (Dekker's algorithm). So no
worker reads arguments, which are on the caller's stack, after the caller has returned. ARGUMENTS and
ARGUMENT_TYPES are written before OPEN_CALL and read after it, so they belong to the call that is open. A
leaving worker releases what it read and wrote, and the caller's load acquires it. In the queue, completing a
chunk releases its results and the barrier's load acquires them: all updates of a counter are one release
sequence, so the last value stands for all chunks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from unspool.engine.kernel import inline_kernel, instruction, kernel, llvm_intrinsic, memory_instruction
from unspool.engine.simd import BOUNDSCHECK, llvm_call

YIELD_NANOSECONDS = 20_000
"""A waiting thread yields the processor this often."""
IDLE_NANOSECONDS = 5_000_000
"""A worker without a call sleeps after this time, which is longer than the time between two steps."""
SPINS_PER_LOOK = 256
"""Loads between two looks at the clock."""


def _atomic_load(order: str) -> Callable[..., Any]:
    return memory_instruction(lambda builder, where: builder.load_atomic(where, order, 8), types.int64)


def _atomic_update(operation: str, order: str) -> Callable[..., Any]:
    return memory_instruction(
        lambda builder, where, value: builder.atomic_rmw(operation, where, value, order),
        types.int64,
        types.int64,
    )


# Atomic operations on (array, index); an update takes a value and returns the value before.
load_acquire, load_seq_cst = _atomic_load("acquire"), _atomic_load("seq_cst")
_fetch_add, add_seq_cst = _atomic_update("add", "acq_rel"), _atomic_update("add", "seq_cst")
exchange = _atomic_update("xchg", "seq_cst")


def _pause(builder: Any) -> None:
    machine = binding.get_default_triple().split("-")[0]
    if machine == "x86_64":
        llvm_call(builder, "x86.sse2.pause", ir.VoidType())
    elif machine in ("aarch64", "arm64"):
        llvm_call(builder, "aarch64.hint", ir.VoidType(), ir.Constant(ir.IntType(32), 1))


pause_processor = instruction(_pause, types.void)
"""The processor's spin-wait hint."""


def _read_clock(builder: Any) -> Any:
    word, number = ir.IntType(64), ir.IntType(32)
    timespec = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
    kind = ir.FunctionType(number, [number, timespec.type])
    function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
    builder.call(function, [ir.Constant(number, time.CLOCK_MONOTONIC), timespec])
    seconds, nanoseconds = (builder.load(cgutils.gep_inbounds(builder, timespec, 0, it)) for it in (0, 1))
    return builder.add(builder.mul(seconds, word(1_000_000_000)), nanoseconds)


if sys.platform == "win32":
    _milliseconds = types.ExternalFunction("GetTickCount64", types.int64())

    @inline_kernel
    def read_clock() -> int:
        """Nanoseconds since some time, in steps of 16 ms."""
        return _milliseconds() * 1_000_000  # type: ignore[no-any-return]

    @inline_kernel
    def yield_processor() -> None:
        """Does nothing: Windows schedules other threads anyway."""

else:
    read_clock = instruction(_read_clock, types.int64)
    """Nanoseconds since some time."""
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @inline_kernel
    def yield_processor() -> None:
        """Let another thread run."""
        _sched_yield()


@kernel
def yield_sometimes(last: int) -> int:
    """Yield after YIELD_NANOSECONDS; the time of the last yield, or now if there was none."""
    now = read_clock()
    if last == 0:
        return now  # type: ignore[no-any-return]
    if now - last < YIELD_NANOSECONDS:
        return last
    yield_processor()
    return now  # type: ignore[no-any-return]


# ── work queue ───────────────────────────────────────────────────────────────────────────────────


@inline_kernel
def claim(queue: Any, phase: int) -> int:
    """The index of a chunk that no other thread has; at least the number of chunks if none is left."""
    return _fetch_add(queue, 2 * phase, 1)  # type: ignore[no-any-return]


@inline_kernel
def complete(queue: Any, phase: int) -> int:
    """Mark the claimed chunk as complete and claim the next one."""
    _fetch_add(queue, 2 * phase + 1, 1)
    return _fetch_add(queue, 2 * phase, 1)  # type: ignore[no-any-return]


@inline_kernel
def barrier(queue: Any, phase: int, chunks: int) -> int:
    """Wait until all chunks of this phase are complete; the next phase's number."""
    spins = looked = 0
    while load_acquire(queue, 2 * phase + 1) < chunks:
        spins += 1
        if spins % SPINS_PER_LOOK == 0:
            looked = yield_sometimes(looked)
    return phase + 1


def chunk_phase(function: Callable[..., None]) -> Callable[..., int]:
    """The phase that calls function(chunk, *args) for every chunk; returns the next phase's number.

    Its arguments: the queue, the phase's number, the number of chunks, and args.
    """
    work_on = inline_kernel(function)

    @kernel
    def run(queue: Any, phase: int, chunks: int, *args: Any) -> int:
        chunk = claim(queue, phase)
        while chunk < chunks:
            work_on(chunk, *args)
            chunk = complete(queue, phase)
        return barrier(queue, phase, chunks)

    return run


# ── rendezvous ───────────────────────────────────────────────────────────────────────────────────

CACHE_LINE_WORDS = 8
"""int64 in a cache line: different threads write to different lines."""
OPEN_CALL, ARGUMENTS, ARGUMENT_TYPES, WORKERS_INSIDE, CALL_COUNT, DISMISSED = (
    CACHE_LINE_WORDS * field for field in range(6)
)
"""Fields of a mailbox: the number of the open call or 0; the address and a type number of its arguments; how
many workers have joined it; how many calls there have been; 1 if workers should leave for other work."""
MAILBOX_SIZE = CACHE_LINE_WORDS * 6


def new_mailbox() -> NDArray[np.int64]:
    """The mailbox of an entry, without workers and without an open call."""
    return np.zeros(MAILBOX_SIZE, np.int64)


def with_empty_arrays(argument: Any) -> Any:
    """The argument with empty arrays of the same types, so that a waiting worker keeps no memory alive."""
    if isinstance(argument, np.ndarray):
        return np.empty((0,) * argument.ndim, argument.dtype)
    if isinstance(argument, tuple):
        parts = [with_empty_arrays(part) for part in argument]
        return type(argument)(*parts) if hasattr(argument, "_fields") else tuple(parts)
    return argument


@llvm_intrinsic
def _spill_arguments(_: Any, call: Any) -> Any:
    """Store the arguments on the entry's stack, where they stay until the entry returns; their address."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        slot = cgutils.alloca_once(builder, context.get_value_type(signature.args[0]))
        builder.store(args[0], slot)
        return builder.ptrtoint(slot, ir.IntType(64))

    return types.int64(call), build


@llvm_intrinsic
def _type_number(_: Any, call: Any) -> Any:
    """A number that identifies the types of the arguments."""
    number = zlib.crc32(str(call).encode()) + 1
    return types.int64(call), lambda *_: ir.IntType(64)(number)


@llvm_intrinsic
def _load_arguments(_: Any, address: Any, call: Any) -> Any:
    """The arguments at an address, which have the types of `call`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[1]
        arguments = builder.load(builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()))
        if context.enable_nrt:  # if this function counts references
            context.nrt.incref(builder, kind, arguments)
        return arguments

    return call(types.int64, call), build


@inline_kernel
def open_call(mailbox: Any, call: Any) -> None:
    """Let workers join the call with these arguments."""
    exchange(mailbox, ARGUMENTS, _spill_arguments(call))
    exchange(mailbox, ARGUMENT_TYPES, _type_number(call))
    exchange(mailbox, OPEN_CALL, add_seq_cst(mailbox, CALL_COUNT, 1) + 1)


@inline_kernel
def close_call(mailbox: Any) -> None:
    """Let no more workers join, and wait until all have left."""
    exchange(mailbox, OPEN_CALL, 0)
    spins = looked = 0
    while load_seq_cst(mailbox, WORKERS_INSIDE) > 0:
        spins += 1
        if spins % SPINS_PER_LOOK == 0:
            looked = yield_sometimes(looked)


@inline_kernel
def join_call(mailbox: Any, call: Any, last: int) -> int:
    """Wait for a call with these argument types and a number above `last`, and join it.

    Returns its number, or 0 after IDLE_NANOSECONDS without a call or if the worker is dismissed.
    """
    spins = looked = began = 0
    while looked - began <= IDLE_NANOSECONDS and load_acquire(mailbox, DISMISSED) == 0:
        number = load_acquire(mailbox, OPEN_CALL)
        if number > last:
            add_seq_cst(mailbox, WORKERS_INSIDE, 1)
            if load_seq_cst(mailbox, OPEN_CALL) == number and load_acquire(
                mailbox, ARGUMENT_TYPES
            ) == _type_number(call):
                return number  # type: ignore[no-any-return]
            add_seq_cst(mailbox, WORKERS_INSIDE, -1)
        spins += 1
        if spins % SPINS_PER_LOOK == 0:
            looked = yield_sometimes(looked)
            began = looked if began == 0 else began
        pause_processor()
    return 0


@inline_kernel
def joined_arguments(mailbox: Any, call: Any) -> Any:
    """The arguments of the joined call; the caller holds references to them until all workers have left."""
    return _load_arguments(load_acquire(mailbox, ARGUMENTS), call)


@inline_kernel
def leave_call(mailbox: Any) -> None:
    """Leave the joined call."""
    add_seq_cst(mailbox, WORKERS_INSIDE, -1)


# ── worker threads ───────────────────────────────────────────────────────────────────────────────

Mailbox = NDArray[np.int64]
WorkerCall = tuple[Mailbox | None, Callable[..., Any], tuple[Any, ...]]

mailboxes: list[Mailbox] = []
"""The mailboxes of all entries."""


class Worker:
    """A thread that makes the calls that it is given, one after another. torch's threads are not used."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[WorkerCall] = SimpleQueue()
        self.mailbox: Mailbox | None = None
        """The mailbox on which it spins now."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.mailbox, function, args = self.calls.get()
            function(*args)
            self.mailbox = None
            del function, args  # a sleeping worker must not keep a model alive

    def assign(self, mailbox: Mailbox | None, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Make this call next; dismisses the worker from the mailbox on which it spins."""
        current = self.mailbox
        if current is not None:
            current[DISMISSED] = 1
        self.calls.put((mailbox, function, args))


_workers: list[Worker] = []
_pool_lock = threading.Lock()


def _grow_pool(workers: int) -> None:
    with _pool_lock:
        while len(_workers) < workers:
            _workers.append(Worker(f"unspool-{len(_workers) + 1}"))


def run_in_threads(threads: int, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` in this thread and in `threads` − 1 workers; return when this thread is done."""
    if BOUNDSCHECK:
        threads = 1  # an exception in a worker would be lost
    if threads > len(_workers) + 1:
        _grow_pool(threads - 1)
    for worker in _workers[: threads - 1]:
        worker.assign(None, function, args)
    function(*args)


def keep_workers_at(mailbox: Mailbox, workers: int, function: Callable[..., Any], *args: Any) -> None:
    """Let this many workers spin on a mailbox, inside a call that ends after a time without work."""
    if workers > len(_workers):
        _grow_pool(workers)
    mailbox[DISMISSED] = 0
    for worker in _workers[:workers]:
        if worker.mailbox is not mailbox and worker.calls.empty():
            worker.assign(mailbox, function, args)


def _after_fork() -> None:
    """A child process does not have its parent's threads."""
    global _pool_lock
    _workers.clear()
    _pool_lock = threading.Lock()
    for mailbox in mailboxes:
        mailbox[:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
