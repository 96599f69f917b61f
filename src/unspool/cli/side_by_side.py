"""Functions in processes of their own, as many at a time as there are cores for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from io import TextIOBase
from typing import TextIO


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WholeLines(TextIOBase):
    """A stream of whole lines, so that those of several processes do not mix.

    The beginning of a line that is to be seen at once becomes a line, and begins the whole one again.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._begun, self._seen = stream, "", ""

    def write(self, text: str) -> int:
        """Pass on what has ended, and keep the rest."""
        lines, end, self._begun = (self._begun + text).rpartition("\n")
        if end:
            self._stream.write(lines + end)
            self._stream.flush()
            self._seen = ""
        return len(text)

    def flush(self) -> None:
        """Show what is kept."""
        if self._begun != self._seen:
            self._stream.write(self._begun + "\n")
            self._stream.flush()
            self._seen = self._begun


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, too, and ends this one
    if sys.stderr is not None:
        sys.stderr = WholeLines(sys.stderr)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def side_by_side(functions: Sequence[Callable[[], object]], processes: int) -> None:
    """Call each of them in one of so many new processes, in this order.

    An error of one, Ctrl-C, or a process that is killed ends all.
    """
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _begin) as pool:
        try:
            for done in as_completed([pool.submit(function) for function in functions]):
                done.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
