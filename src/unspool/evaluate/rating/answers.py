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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.io import fsync_folder

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
                fsync_folder(path.parent)
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


@dataclass(frozen=True)
class Scale:
    """One question about one text, or about two.

    What raters are asked, and what they may answer.

    A score counts two things that a text is or is not: fluent, and relevant. That is the standard of Miao et
    al. 2019, appendix B (papers.bib: miao2019kernelized). Their word for the second is "relative to the input
    question": the text answers, or goes on with, what stands before it.
    """

    name: str
    question: str
    choices: Mapping[str, str]
    """What may be answered → what it means, in the order of the scale (for agreement that knows of near)."""
    texts: int
    """How many texts an item shows."""
    guide: str
    """What raters should read first."""

    def check(self, choice: str) -> str:
        """The choice, if it is one."""
        if not isinstance(choice, str) or choice not in self.choices:
            said = ", ".join(f"{key} ({words})" for key, words in self.choices.items())
            raise ValueError(f"{choice!r:.40} is no answer to {self.question!r}: choose one of {said}")
        return choice


SCORE = Scale(
    name="score",
    question="How good is the text?",
    choices={
        "0": "neither fluent nor relevant",
        "1": "either fluent or relevant, but not both",
        "2": "both fluent and relevant",
    },
    texts=1,
    guide=(
        "Fluent: it reads as if somebody who knows the language had written it, with no broken grammar and "
        "no words that make no sense together.\n"
        "Relevant: it answers, or goes on with, what stands before it, and not some other question.\n"
        "Judge the two apart: a fluent answer to another question is a 1, and so is a broken one to this."
    ),
)
PREFERENCE = Scale(
    name="preference",
    question="Which text is the better one?",
    choices={"a": "the first", "=": "neither: they are equally good", "b": "the second"},
    texts=2,
    guide=(
        "Prefer the text that is more fluent and goes better with what stands before it, not the longer "
        "one.\n"
        "Which system wrote which is not told, and changes sides from item to item."
    ),
)

SCALES: dict[str, Scale] = {"preference": PREFERENCE, "score": SCORE}
