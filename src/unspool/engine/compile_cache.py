"""Compiled entries: compiled for this processor on first use, with a notice on stderr, and cached on disk."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from numba.core import event

from unspool.engine.processors import cpu_quota
from unspool.engine.simd import BOUNDSCHECK
from unspool.engine.threads import keep_workers_at, mailboxes, new_mailbox, run_in_threads, with_empty_arrays
from unspool.lazy import gc_paused


class CompileNotice(event.Listener):  # type: ignore[misc]
    """A context that prints on stderr when numba starts to compile inside it, and how long that took."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.started: float | None = None

    def __enter__(self) -> None:
        event.register("numba:run_pass", self)

    def __exit__(self, *_: object) -> None:
        event.unregister("numba:run_pass", self)
        if self.started is not None:
            print(f" done in {time.perf_counter() - self.started:.0f} s", file=sys.stderr, flush=True)

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A compiler pass starts; what is found on disk needs none."""
        if self.started is None:
            self.started = time.perf_counter()
            message = f"unspool: compiling {self.what} for this processor …"
            print(message, end="", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """A compiler pass ends."""


class CompiledEntry:
    """An entry whose first call, in one thread, compiles it or loads it from disk."""

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        self.what, self.function = what, function
        self.ready = False
        self._compiling = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """Call the entry."""
        if self.ready:
            return self.function(*args)
        with self._compiling, CompileNotice(self.what), gc_paused():
            result = self.function(*args)
        self.ready = True
        return result

    def run(self, threads: int, *args: Any) -> None:
        """Call the entry in this many threads at once; the first call is in one thread."""
        run_in_threads(min(threads, cpu_quota()) if self.ready else 1, self, *args)


class RendezvousEntry(CompiledEntry):
    """An entry in which worker threads stay between calls (`threads`).

    After its own arguments it takes the number of threads (0 for a worker) and its mailbox.
    """

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        super().__init__(what, function)
        self.mailbox = new_mailbox()
        self._one_call = threading.Lock()
        self._worker_arguments: tuple[Any, ...] | None = None
        """Arguments of the same types with empty arrays."""
        mailboxes.append(self.mailbox)

    def run(self, threads: int, *args: Any) -> None:
        """Call the entry in this many threads; in one if it is the first call or another call is running."""
        threads = min(threads, cpu_quota())
        if threads == 1 or BOUNDSCHECK or not self.ready or not self._one_call.acquire(blocking=False):
            self(*args, 1, self.mailbox)
            return
        try:
            if self._worker_arguments is None:
                self._worker_arguments = with_empty_arrays(args)
            keep_workers_at(
                self.mailbox, threads - 1, self.function, *self._worker_arguments, 0, self.mailbox
            )
            self.function(*args, threads, self.mailbox)
        finally:
            self._one_call.release()
