"""One process at a time on a run folder: the operating system takes the lock back when its holder dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the run folder; BlockingIOError if another living process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: the user must take care there
        yield
        return
    descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise BlockingIOError(
                f"{run} is being trained by another process (number {holder}): wait for it, "
                "stop it, or choose another --out"
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
