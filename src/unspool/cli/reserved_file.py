"""A file that is written at the end: that it can be is found out at the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unspool.files import named_errors


@contextmanager
def reserved(path: Path | None) -> Iterator[None]:
    """Fail now, not after the work, if `path` cannot be written to.

    Work that fails leaves no empty file, nor does a process that is killed.
    """
    if path is None or path.is_fifo() or path.is_char_device():  # to open a pipe would wait for its reader
        yield
        return
    there = path.exists()
    path.open("ab").close()
    if not there:
        path.resolve().unlink()
    try:
        with named_errors(path):
            yield
    finally:
        if not there and path.is_file() and path.stat().st_size == 0:
            path.unlink()
