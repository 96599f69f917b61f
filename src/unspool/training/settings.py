"""The settings of a training run: the table [train] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TrainSettings:
    """How long, how fast, how often, where."""

    updates: int
    """Updates of the weights, all in all."""
    accumulate: int = 1
    """Batches added up for one update, by all processes together."""
    lr: float = 1e-3
    """The peak of the learning rate; [schedule] says how it gets there and what follows."""
    betas: tuple[float, ...] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.01
    clip: float = 1.0
    """The longest gradient (its norm); 0 leaves it as it is."""
    log_every: int = 10
    """Updates between two points of the curves."""
    validate_every: int = 500
    """Updates between two validations; there is one at the end, too."""
    patience: int | None = None
    """Stop after this many validations without a new best one."""
    checkpoint_every: int = 500
    """Updates between two checkpoints; there is one at the end, too."""
    checkpoint_seconds: float | None = None
    """A checkpoint also after this time without one."""
    keep: int = 2
    """The last checkpoints that stay on the disk (and the best)."""
    final: Literal["average", "best", "last"] = "best"
    """The weights of the finished run: the best validated, the last, the mean of `average` checkpoints."""
    average: int = 5
    """How many of the last checkpoints final = "average" takes the mean of."""
    tensorboard: bool = False
    """Write the curves for TensorBoard, too."""
    precision: Literal["bfloat16", "float32"] = "float32"
    """The arithmetic of the products; weights and their updates are always float32."""
    device: str = "cpu"
    threads: int | None = None
    """Threads of this process; as torch chooses where none are given."""
    shard: bool = False
    """Share weights and optimizer out among the processes (FSDP), instead of copying them (DDP)."""

    def __post_init__(self) -> None:
        for name in (
            "updates",
            "accumulate",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "keep",
            "average",
        ):
            _at_least(name, getattr(self, name), 1)
        for name in ("patience", "threads"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("lr", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"train.{name}={getattr(self, name)} must be above 0")
        for name in ("weight_decay", "clip"):
            _at_least(name, getattr(self, name), 0)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"train.betas={list(self.betas)} must be two numbers of 0 or more, below 1")
        if self.checkpoint_seconds is not None and not self.checkpoint_seconds > 0:
            raise ValueError(f"train.checkpoint_seconds={self.checkpoint_seconds} must be above 0")


def _at_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise ValueError(f"train.{name}={value} must be at least {least}")
