"""A folder of parts, one file a block, each there whole or not at all; and what the job was that they are of.

    answers/  job.json  part-000000.jsonl  part-000001.jsonl  …

In order of their names they are what one machine writes to one file. A block whose part is there is done:
that is all there is to resuming, and to every row being there once. Parts of another job are never mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from unspool.files.atomic import new_file

JOB, LOCK = "job.json", ".lock"


@dataclass(frozen=True)
class PartFolder:
    """The folder, while this process alone writes to it."""

    path: Path
    asked: Mapping[str, Any]
    """The job, as it was first asked for."""

    def part(self, number: int) -> Path:
        """The file of a block."""
        return self.path / f"part-{number:06d}.jsonl"

    def has(self, number: int) -> bool:
        """Whether a block is done."""
        return self.part(number).exists()

    def write(self, number: int, content: str) -> None:
        """Keep what a block came to."""
        with new_file(self.part(number)) as fresh:
            fresh.write_text(content, encoding="utf-8", newline="\n")


def first_asked(folder: Path) -> dict[str, Any]:
    """The job that a folder was begun with; empty where there is none."""
    if not (folder / JOB).exists():
        return {}
    try:
        found: dict[str, Any] = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{folder / JOB}: not what this command writes ({error}); choose another folder"
        ) from None
    return found


@contextmanager
def part_folder(folder: Path, asked: Mapping[str, Any]) -> Iterator[PartFolder]:
    """Hold the folder, new or begun with this very job; what belongs to another is refused."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: a corpus is answered into a folder; choose another name")
    if folder.is_dir() and not (folder / JOB).exists() and any(it.name != LOCK for it in folder.iterdir()):
        raise ValueError(f"{folder} holds other files and no {JOB}: choose an empty or a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout as error:
        raise BlockingIOError(
            f"another process writes to {folder}: wait for it, or choose another folder"
        ) from error
    with lock:
        wanted = json.loads(json.dumps(asked))
        begun = first_asked(folder)
        other = sorted(key for key in wanted.keys() | begun.keys() if wanted.get(key) != begun.get(key))
        if begun and other and any(folder.glob("part-*")):
            told = "; ".join(
                f"{key} was {begun.get(key)!r:.60} and is {wanted.get(key)!r:.60}" for key in other[:3]
            )
            raise ValueError(
                f"{folder} was begun with another job ({told}): ask the same, or choose another folder"
            )
        if wanted != begun:
            with new_file(folder / JOB) as fresh:
                fresh.write_text(json.dumps(wanted, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        yield PartFolder(folder, wanted)
