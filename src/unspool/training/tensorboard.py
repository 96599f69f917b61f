"""The curves for TensorBoard, where a recipe asks for it: train.tensorboard = true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

EVENTS = "tensorboard"


class Events:
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
