"""Answers as they come, one JSON object a line, in a file that only grows: a kill costs the answer in flight.

    lock → cut off what a killed writer left behind → append one line → flush to the disk → unlock

An answer is there once `append` returns, whatever happens afterwards. A line without its line end is what a
killed writer, or a power cut, has left of an answer nobody was told of: readers pass over it, and the next
writer removes it. Any other line that cannot be read is damage from elsewhere, and an error that names it.
Several processes may write to one file; the operating system takes the lock back from one that dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.files.atomic import flush_names

PATIENCE = 30.0
"""Seconds to wait for others to have written."""
CHUNK = 1 << 16
BINARY = getattr(os, "O_BINARY", 0)
"""Windows would change the ends of lines."""


@dataclass(frozen=True)
class Answer:
    """What one rater said of one item."""

    rater: str
    item: str
    choice: str
    at: str
    """When, in UTC (ISO 8601)."""


def append(path: Path, answers: Sequence[Answer]) -> None:
    """Add answers to the file, all in one write; on the disk when this returns."""
    lines = "".join(f"{json.dumps(asdict(it), ensure_ascii=False)}\n" for it in answers).encode()
    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock, timeout=PATIENCE):
            new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o644)
            try:
                _mend(descriptor)
                _write(descriptor, lines)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                flush_names(path.parent)
    except Timeout:
        raise BlockingIOError(
            f"{path} has been locked by another process for {PATIENCE:.0f} seconds: end it, and answer again"
        ) from None


def read(path: Path) -> list[Answer]:
    """All answers, in the order in which they came; none where there is no file yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    *lines, tail = content.split(b"\n")
    found = [_answer(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    # A writer that was killed between its line and the line's end had written the whole answer.
    whole = _parsed(tail)
    return [*found, _answer(tail, f"{path}:{len(lines) + 1}")] if whole is not None else found


def _answer(line: bytes, where: str) -> Answer:
    record = _parsed(line)
    names = Answer.__dataclass_fields__
    if record is None or not all(isinstance(record.get(name), str) for name in names):
        raise ValueError(
            f"{where}: not an answer: {line[:60]!r}. Something else has written to this file; remove the "
            "line (the answers around it are whole)."
        )
    return Answer(**{name: record[name] for name in names})


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _mend(descriptor: int) -> None:
    """End a last line that is whole, and cut off one that is not."""
    size = os.fstat(descriptor).st_size
    tail = b""
    while b"\n" not in tail and len(tail) < size:
        begin = max(0, size - len(tail) - CHUNK)
        os.lseek(descriptor, begin, os.SEEK_SET)
        tail = os.read(descriptor, size - len(tail) - begin) + tail
    torn = tail[tail.rfind(b"\n") + 1 :]
    if not torn:
        return
    if _parsed(torn) is not None:
        _write(descriptor, b"\n")
    else:
        os.ftruncate(descriptor, size - len(torn))


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
