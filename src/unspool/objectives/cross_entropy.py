"""Maximum likelihood with teacher forcing: every target is predicted from the true ones before it.

    L = − Σ_j [ (1 − s)·log p(y_j | y_{<j}, x) + s/V · Σ_v log p(v | y_{<j}, x) ]

Label smoothing s: Szegedy et al. 2016, §7 (papers.bib: szegedy2016rethinking). The sum is over all targets
that count; the trainer divides it by their number once the batches of an update have been added up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.objectives.hidden_places import refuse_hidden_places
from unspool.protocols import Clock, Loss, Objective, Trainable


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """−log p of the targets, smoothed towards the uniform distribution."""

    smoothing: float = 0.0
    """The share s of probability that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < 1.0:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1")

    def check(self, model: Trainable) -> None:
        """Refuse a model that would see what it is to say."""
        refuse_hidden_places(model, self)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over the batch; stats has "nll" without smoothing, and of labels how many are "right"."""
        hidden_MD = model.hidden_for(batch).flatten(0, 1)
        targets_M, weights_M = batch.targets_NU.flatten(), batch.weights_NU.flatten()
        # Padding has weight 0, and the head leaves it out before it costs anything.
        total, nll = model.head.loss(hidden_MD, targets_M, weights_M, self.smoothing)
        stats = {"nll": float(nll)}
        if model.labels is not None:  # so few of them that to look at all costs nothing
            stats["right"] = float(weights_M[_chosen(model, hidden_MD) == targets_M].sum())
        return Loss(total, batch.weight, stats)


@torch.no_grad()
def _chosen(model: Trainable, hidden_MD: Tensor) -> Tensor:
    """(M): the most probable label of each."""
    return model.head(hidden_MD).argmax(-1)
