"""One process at a time on a run folder: the operating system takes the lock back when its holder dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder; BlockingIOError if another living process holds it."""
    path = run / LOCK
    holder = _holder(path)  # before: some versions of filelock empty the file as they try
    try:
        lock = FileLock(path).acquire(blocking=False)
    except Timeout as error:
        raise BlockingIOError(
            f"{run} is being trained by another process (number {holder}): wait for it, "
            "stop it, or choose another --out"
        ) from error
    with lock:
        with suppress(OSError):  # Windows lets nobody write to what is locked
            path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip() or "unknown"
    except (OSError, ValueError):
        return "unknown"
