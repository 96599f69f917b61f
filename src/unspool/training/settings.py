"""The settings of a training run: the table [train] of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from unspool.config import unknown
from unspool.plugins import is_plugin

MEASURES = ("loss", "bleu", "chrf")


@dataclass(frozen=True)
class TrainSettings:
    """Length, optimizer, validation, checkpoints and device of a run."""

    updates: int = 0
    """Number of updates; or give `epochs`."""
    epochs: float | None = None
    """Passes over the training data, instead of `updates`; may be fractional."""
    accumulate: int = 1
    """Batches accumulated in one update, by all processes together."""
    lr: float = 1e-3
    """Peak of the learning rate; [schedule] defines its course."""
    betas: tuple[float, ...] = (0.9, 0.98)
    """β₁ and β₂ of AdamW."""
    eps: float = 1e-9
    """ε of AdamW."""
    weight_decay: float = 0.01
    """λ of AdamW, applied to matrices, not to gains and biases."""
    clip: float = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    log_every: int = 10
    """Updates between two points of the curves."""
    validate_every: int = 500
    """Updates between two validations; the last update is always validated."""
    measure: str = "loss"
    """What chooses the best validation: "loss" (−log p); or "bleu", "chrf" or a Python function
    module:function (outputs, references) → number, higher is better, of greedy outputs for its sources."""
    measured_rows: int = 200
    """Number of sources, from the first, that the score uses."""
    patience: int | None = None
    """Stop after this many validations without an improvement."""
    checkpoint_every: int = 500
    """Updates between two checkpoints; the last update always has one."""
    keep: int = 2
    """Number of last checkpoints to keep (besides the best)."""
    final: Literal["average", "best", "last"] = "best"
    """Final weights: of the best validation, of the last update, or the mean of `average` checkpoints."""
    average: int = 5
    """Number of last checkpoints that final = "average" averages."""
    precision: Literal["bfloat16", "float32"] = "float32"
    """Precision of matrix products; weights and updates are always float32."""
    device: str = "cpu"
    """The torch device: "cpu", "cuda", …"""
    threads: int | None = None
    """Threads of this process; by default torch's choice."""
    recompute: bool = False
    """Activation checkpointing: keep only the inputs of Transformer blocks; less memory, more time."""
    shard: bool = False
    """Shard weights and optimizer over the processes (FSDP) instead of replicating them (DDP)."""

    def __post_init__(self) -> None:
        for names, is_allowed, limits in LIMITS:
            for name in names:
                value = getattr(self, name)
                if value is not None and not is_allowed(value):
                    raise ValueError(f"train.{name}={value} must be {limits}")
        if self.updates and self.epochs is not None:
            raise ValueError(
                f"train.updates={self.updates} and train.epochs={self.epochs} are both given: remove one "
                "of them"
            )
        if not self.updates and self.epochs is None:
            raise ValueError("the length of the run is missing: give train.updates or train.epochs")
        if self.measure not in MEASURES and not is_plugin(self.measure):
            raise ValueError(unknown(self.measure, MEASURES, "value of train.measure"))

    def with_updates(self, batches_per_epoch: int) -> TrainSettings:
        """Return the settings with the length in updates, given the number of batches per epoch."""
        if self.epochs is None:
            return self
        # Rounded first, because 0.1 · 30 is slightly more than 3.
        updates = math.ceil(round(self.epochs * batches_per_epoch / self.accumulate, 6))
        return replace(self, updates=max(1, updates), epochs=None)


COUNTS = ("accumulate", "log_every", "validate_every", "measured_rows", "patience", "checkpoint_every")
LIMITS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("updates",), lambda it: it >= 0, "at least 1"),  # 0 means that epochs are given
    ((*COUNTS, "keep", "average", "threads"), lambda it: it >= 1, "at least 1"),
    (("epochs", "lr", "eps"), lambda it: 0 < it < math.inf, "above 0 and finite"),
    (("weight_decay", "clip"), lambda it: 0 <= it < math.inf, "at least 0 and finite"),
    (("betas",), lambda it: len(it) == 2 and all(0 <= b < 1 for b in it), "two numbers from 0 to below 1"),
)
"""Settings, their condition, and its words; None is allowed where it is the default."""
