"""A file of finished cells, one JSON object a line, that loses none of them if the process is killed.

Each line is written and fsynced when its cell is done. A kill in the middle of a line leaves a part of it, without
a line end; the next run cuts it off and measures that cell again.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from unspool.io import fsync_folder

Found = dict[str, dict[str, Any]]


def read_cells(content: bytes) -> tuple[Found, int]:
    """Return the complete cells by name, and the number of bytes that they take."""
    found: Found = {}
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            found[row.pop("cell")] = row
        except (ValueError, KeyError, AttributeError) as error:
            raise SystemExit(
                f"line {number} is not a cell ({error}): repair the file or name another"
            ) from error
    return found, len(whole)


class Cells:
    """The cells of one run. Only one process may add to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            self.found, size = self._lock_and_read(path)
        except BaseException:
            self._file.close()
            raise
        self._file.truncate(size)
        fsync_folder(path.parent)

    def __enter__(self) -> Cells:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _lock_and_read(self, path: Path) -> tuple[Found, int]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SystemExit(f"{path} is in use by another run: wait for it, or name another file") from error
        self._file.seek(0)
        return read_cells(self._file.read())

    def add(self, name: str, numbers: dict[str, Any]) -> None:
        """Append a finished cell."""
        line = json.dumps({"cell": name, **numbers}, ensure_ascii=False) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.found[name] = json.loads(line)
        del self.found[name]["cell"]
