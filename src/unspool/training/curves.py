"""Training curves: one JSON line for each point.

    {"update": 100, "epoch": 0.4, "loss": 5.1, "nll": 5.0, "norm": 0.8, "lr": 0.001, …}
    {"update": 500, "valid": 4.7, …}

A checkpoint records the length of the file. A resumed run truncates it to that length, so that every update
is in it once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from unspool.io import name_file_in_errors

CURVES = "curves.jsonl"
PICTURE = "curves.svg"


class Curves:
    """Appends points to the file, which is open only during a write."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self._path = path
        with path.open("ab") as file:
            # A file shorter than recorded must not be extended with zeros.
            file.truncate(min(length, path.stat().st_size))

    def add(self, point: dict[str, Any]) -> None:
        """Append a point."""
        with name_file_in_errors(self._path), self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(point).encode() + b"\n")

    def flush(self) -> int:
        """Flush to the disk and return the length of the file."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def read_curves(run: Path) -> list[dict[str, Any]]:
    """Read all points of a run folder, without an unfinished last line."""
    path = run / CURVES
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]
