"""Rating scales, and the file of answers: JSON lines that are only appended.

    lock → remove a partial last line → append → flush to the disk → unlock

An answer is durable once `append` returns. A killed writer or a power cut can leave a partial last line:
readers skip it, and the next writer removes it. Other damaged lines are skipped with a warning.
Several processes can write to one file; the operating system releases the lock of a killed process.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.io import fsync_folder

LOCK_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """The answer of one rater to one item."""

    rater: str
    item: str
    choice: str
    at: str
    """UTC time (ISO 8601)."""


def append(path: Path, answers: Sequence[Answer]) -> None:
    """Append answers to the file and flush them to the disk."""
    lines = "".join(f"{json.dumps(asdict(answer), ensure_ascii=False)}\n" for answer in answers).encode()
    lock = path.with_name(f".{path.name}.lock")
    try:
        with FileLock(lock, timeout=LOCK_TIMEOUT_S):
            is_new = not path.exists()
            with path.open("a+b") as file:
                file.seek(0)
                content = file.read()
                partial = content[content.rfind(b"\n") + 1 :]
                if partial and _parse(partial) is not None:
                    file.write(b"\n")
                else:
                    file.truncate(len(content) - len(partial))
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                fsync_folder(path.parent)
    except Timeout:
        raise BlockingIOError(
            f"{path} is locked by another process (waited {LOCK_TIMEOUT_S:.0f} s): end it and answer again"
        ) from None


def read(path: Path) -> list[Answer]:
    """Read all answers in order; [] if the file does not exist. Damaged lines are skipped with a warning."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    *lines, tail = content.split(b"\n")
    # A writer that was killed before the line end had written a complete answer.
    complete = [*lines, tail] if _parse(tail) is not None else lines
    answers = []
    for number, line in enumerate(complete, start=1):
        if answer := _answer(line):
            answers.append(answer)
        elif line.strip():
            warnings.warn(f"{path}:{number}: not an answer, skipped: {line[:60]!r}", stacklevel=2)
    return answers


def _answer(line: bytes) -> Answer | None:
    record, names = _parse(line), Answer.__dataclass_fields__
    if record is None or not all(isinstance(record.get(name), str) for name in names):
        return None
    return Answer(**{name: record[name] for name in names})


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Scale:
    """A question about one text or two, and its possible answers.

    The score counts two properties of a text: fluent and relevant, as in Miao et al. 2019, appendix B
    (papers.bib: miao2019kernelized), where relevant is "relative to the input question".
    """

    name: str
    question: str
    choices: Mapping[str, str]
    """Answer → its meaning, in the order of the scale (for ordinal agreement)."""
    texts: int
    """Number of texts per item."""
    guide: str

    def check(self, choice: str) -> str:
        """Return the choice; raise if it is not an answer."""
        if not isinstance(choice, str) or choice not in self.choices:
            options = ", ".join(f"{key} ({words})" for key, words in self.choices.items())
            raise ValueError(f"{choice!r:.40} is not an answer to {self.question!r}: choose one of {options}")
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
        "Fluent: it reads as if a native speaker wrote it, with correct grammar and words that make sense "
        "together.\n"
        "Relevant: it answers or continues the prompt, and not something else.\n"
        "Rate the two separately: a fluent answer to another question is a 1, and so is a broken answer to "
        "this one."
    ),
)
PREFERENCE = Scale(
    name="preference",
    question="Which text is the better one?",
    choices={"a": "the first", "=": "neither: they are equally good", "b": "the second"},
    texts=2,
    guide=(
        "Prefer the text that is more fluent and fits the prompt better, not the longer one.\n"
        "The systems are not named, and their sides change from item to item."
    ),
)

SCALES: dict[str, Scale] = {"preference": PREFERENCE, "score": SCORE}
