"""The settings of a training run: the table [train] of a recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from unspool.arguments import Checked, integer, number
from unspool.config import unknown
from unspool.plugins import is_plugin

MEASURES = ("loss", "bleu", "chrf")


@dataclass(frozen=True)
class TrainSettings(Checked):
    """Length, optimizer, validation, checkpoints and device of a run."""

    updates: int = integer(0, at_least=0)
    """Number of updates; or give `epochs`."""
    epochs: float | None = number(None, above=0)
    """Passes over the training data, instead of `updates`; may be fractional."""
    accumulate: int = integer(1, at_least=1)
    """Batches accumulated in one update, by all processes together."""
    lr: float = number(1e-3, above=0)
    """Peak of the learning rate; [schedule] defines its course."""
    betas: tuple[float, ...] = (0.9, 0.98)
    """β₁ and β₂ of AdamW."""
    eps: float = number(1e-9, above=0)
    """ε of AdamW."""
    weight_decay: float = number(0.01, at_least=0)
    """λ of AdamW, applied to matrices, not to gains and biases."""
    clip: float = number(1.0, at_least=0)
    """Maximum gradient norm; 0 disables clipping."""
    log_every: int = integer(10, at_least=1)
    """Updates between two points of the curves."""
    validate_every: int = integer(500, at_least=1)
    """Updates between two validations; the last update is always validated."""
    measure: str = "loss"
    """What chooses the best validation: "loss" (−log p); or "bleu", "chrf" or a Python function
    module:function (outputs, references) → number, higher is better, of greedy outputs for its sources."""
    measured_rows: int = integer(200, at_least=1)
    """Number of sources, from the first, that the score uses."""
    patience: int | None = integer(None, at_least=1)
    """Stop after this many validations without an improvement."""
    checkpoint_every: int = integer(500, at_least=1)
    """Updates between two checkpoints; the last update always has one."""
    keep: int = integer(2, at_least=1)
    """Number of last checkpoints to keep (besides the best)."""
    final: Literal["average", "best", "last"] = "best"
    """Final weights: of the best validation, of the last update, or the mean of `average` checkpoints."""
    average: int = integer(5, at_least=1)
    """Number of last checkpoints that final = "average" averages."""
    precision: Literal["bfloat16", "float32"] = "float32"
    """Precision of matrix products; weights and updates are always float32."""
    device: str = "cpu"
    """The torch device: "cpu", "cuda", …"""
    threads: int | None = integer(None, at_least=1)
    """Threads of this process; by default torch's choice."""
    recompute: bool = False
    """Activation checkpointing: keep only the inputs of Transformer blocks; less memory, more time."""
    shard: bool = False
    """Shard weights and optimizer over the processes (FSDP) instead of replicating them (DDP)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"train.betas={list(self.betas)} must be two numbers from 0 to below 1")
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
