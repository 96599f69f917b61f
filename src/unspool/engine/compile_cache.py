"""Functions that are compiled once for this processor and kept on disk; the first time says so.

numba looks only at the file of the function that it compiles when it decides whether what it keeps is still
good. A fingerprint of all files that it is made of goes into the function, so that it is never an old one.
"""

from __future__ import annotations

import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import event

from unspool.engine.simd import CHECKED
from unspool.engine.threads import boards, new_board, stay, together, without_memory
from unspool.lazy import gc_paused

KERNELS = Path(__file__).parent


def fingerprint(*folders: Path) -> int:
    """One number for all that is written in the Python files of some folders."""
    found = 0
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            found = zlib.crc32(path.read_bytes(), found)
    return found


def version(*folders: Path) -> int:
    """What an entry that is made of these folders' files, and of this room's, is kept under."""
    return 2 * fingerprint(KERNELS, *folders) + CHECKED


class Announcement(event.Listener):  # type: ignore[misc]
    """Says on stderr that something is being compiled, when that begins (not when it is found on disk)."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.began: float | None = None

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A pass of the compiler begins."""
        if self.began is None:
            self.began = time.perf_counter()
            message = f"unspool: compiling {self.what} for this processor …"
            print(message, end="", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """A pass of the compiler ends."""

    def close(self) -> None:
        """All is compiled."""
        if self.began is not None:
            print(f" done in {time.perf_counter() - self.began:.0f} s", file=sys.stderr, flush=True)


@contextmanager
def listening(listener: Announcement) -> Iterator[None]:
    """Let it hear of whatever is compiled inside the block."""
    event.register("numba:run_pass", listener)
    try:
        yield
    finally:
        event.unregister("numba:run_pass", listener)
        listener.close()


class Announced:
    """An entry whose first call, in one thread, compiles it or finds it on disk."""

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        self.what, self.function = what, function
        self.ready = False
        self._compiling = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        """What the entry returns."""
        if self.ready:
            return self.function(*args)
        with self._compiling, listening(Announcement(self.what)), gc_paused():
            found = self.function(*args)
        self.ready = True
        return found

    def shared(self, threads: int, *args: Any) -> None:
        """Call it in so many threads (`team`), but the first time in this one alone."""
        together(threads if self.ready else 1, self, *args)


class Open(Announced):
    """An entry whose helpers stay in it from one call to the next (`open_call`).

    Behind its own arguments it is given the number of threads, 0 for a helper, and its board.
    """

    def __init__(self, what: str, function: Callable[..., Any]) -> None:
        super().__init__(what, function)
        self.board = new_board()
        self._one_at_a_time = threading.Lock()
        self._kinds: tuple[Any, ...] | None = None
        """What helpers are given: arguments of the same types, without any memory."""
        boards.append(self.board)

    def shared(self, threads: int, *args: Any) -> None:
        """Call it in so many threads; in this one alone the first time, and while another call is open."""
        if threads == 1 or CHECKED or not self.ready or not self._one_at_a_time.acquire(blocking=False):
            self(*args, 1, self.board)
            return
        try:
            if self._kinds is None:
                self._kinds = without_memory(args)
            stay(threads - 1, self.board, self.function, *self._kinds, 0, self.board)
            self.function(*args, threads, self.board)
        finally:
            self._one_at_a_time.release()
