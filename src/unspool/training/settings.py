"""The settings of a training run: the table [train] of a recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from unspool.config import unknown
from unspool.plugins import is_plugin

MEASURES = ("loss", "bleu", "chrf")


@dataclass(frozen=True)
class TrainSettings:
    """How long, how fast, how often, where."""

    updates: int = 0
    """Updates of the weights, all in all; or give `epochs`."""
    epochs: float | None = None
    """Passes over the training data, in place of `updates`: 2.5 are two and a half."""
    accumulate: int = 1
    """Batches added up for one update, by all processes together."""
    lr: float = 1e-3
    """The peak of the learning rate; [schedule] says how it gets there and what follows."""
    betas: tuple[float, ...] = (0.9, 0.98)
    """How much AdamW keeps of its mean gradient, and of its mean square, from update to update."""
    eps: float = 1e-9
    """What AdamW adds to the root of the mean square, so that it never divides by 0."""
    weight_decay: float = 0.01
    """λ of AdamW: an update takes the share lr · λ of every matrix away; gains and biases stay."""
    clip: float = 1.0
    """The longest gradient (its norm); 0 leaves it as it is."""
    log_every: int = 10
    """Updates between two points of the curves."""
    validate_every: int = 500
    """Updates between two validations; there is one at the end, too."""
    measure: str = "loss"
    """What chooses the best validation: "loss" (−log p); or "bleu", "chrf" or a Python function
    module:function (outputs, references) → number, higher is better, of greedy outputs for its sources."""
    measured_rows: int = 200
    """How many of these sources are answered, the first ones."""
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
    """Where it runs: "cpu", "cuda", …"""
    threads: int | None = None
    """Threads of this process; as torch chooses where none are given."""
    recompute: bool = False
    """Keep of a Transformer block what goes in, and compute the rest again: less memory, more time."""
    shard: bool = False
    """Share weights and optimizer out among the processes (FSDP), instead of copying them (DDP)."""

    def __post_init__(self) -> None:
        self._check_length()
        for name in (
            "accumulate",
            "log_every",
            "validate_every",
            "checkpoint_every",
            "keep",
            "average",
            "measured_rows",
        ):
            _at_least(name, getattr(self, name), 1)
        for name in ("patience", "threads"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("lr", "eps", "checkpoint_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"train.{name}={value} must be above 0, and finite")
        for name in ("weight_decay", "clip"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"train.{name}={value} must be at least 0, and finite")
        if self.measure not in MEASURES and not is_plugin(self.measure):
            raise ValueError(unknown(self.measure, MEASURES, "value of train.measure"))
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"train.betas={list(self.betas)} must be two numbers of 0 or more, below 1")

    def _check_length(self) -> None:
        if self.epochs is not None and not 0 < self.epochs < math.inf:
            raise ValueError(f"train.epochs={self.epochs} must be above 0, and finite")
        if self.updates < 0:
            raise ValueError(f"train.updates={self.updates} must be at least 1")
        if self.updates and self.epochs is not None:
            raise ValueError(
                f"train.updates={self.updates} and train.epochs={self.epochs} are both given: leave one of "
                "them out"
            )
        if not self.updates and self.epochs is None:
            raise ValueError(
                "train.updates=0, and no train.epochs: say how long the run shall be by one of them"
            )

    def counted(self, batches_per_epoch: int) -> TrainSettings:
        """The same settings with the run's length in updates, once it is known how much data there is."""
        if self.epochs is None:
            return self
        # Rounded before it is rounded up: 0.1 · 30 is a little more than 3.
        updates = math.ceil(round(self.epochs * batches_per_epoch / self.accumulate, 6))
        return replace(self, updates=max(1, updates), epochs=None)


def _at_least(name: str, value: float, least: int) -> None:
    if not value >= least:
        raise ValueError(f"train.{name}={value} must be at least {least}")
