"""The curves of a run: one line of JSON for each point, appended as the run goes.

    {"update": 100, "epoch": 0.4, "loss": 5.1, "nll": 5.0, "norm": 0.8, "lr": 0.001, …}
    {"update": 500, "valid": 4.7, …}

A checkpoint remembers how long the file was: what a killed run wrote after it is cut off before a resumed run
writes it again, so that every update is there once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspool.io import name_file_in_errors

CURVES = "curves.jsonl"
PICTURE = "curves.svg"


class Curves:
    """The file. It is open only while a point is written: nothing of it can be lost with the process."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self._path = path
        with path.open("ab") as file:
            # A lost end (a disk that forgot more than the checkpoint) must not be filled with zeros.
            file.truncate(min(length, path.stat().st_size))

    def add(self, point: dict[str, Any]) -> None:
        """One more point."""
        with name_file_in_errors(self._path), self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(point).encode() + b"\n")

    def flush(self) -> int:
        """Onto the disk; the length of the file."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def read_curves(run: Path) -> list[dict[str, Any]]:
    """All points of a run folder; an unfinished last line is left out."""
    path = run / CURVES
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


# The curves for TensorBoard, where a recipe asks for it: train.tensorboard = true.


EVENTS = "tensorboard"


class TensorBoardEvents:
    """Writes every number of a point under its name."""

    def __init__(self, run: Path, update: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "train.tensorboard needs the package tensorboard: pip install tensorboard, or set it to false"
            ) from error
        # What a killed run has written after the checkpoint is not shown.
        self._writer: Any = SummaryWriter(str(run / EVENTS), purge_step=update + 1)

    def add(self, point: Mapping[str, float]) -> None:
        """One more point of the curves."""
        for name, value in point.items():
            if name != "update":
                self._writer.add_scalar(name, value, int(point["update"]))

    def flush(self) -> None:
        """Onto the disk."""
        self._writer.flush()

    def close(self) -> None:
        """No more points."""
        self._writer.close()
