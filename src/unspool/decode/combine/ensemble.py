"""Ensemble: average the predictions of several models.

    probability        p(i) = Σ_m w_m p_m(i)
    log_probability    p(i) ∝ exp Σ_m w_m log p_m(i)            Σ_m w_m = 1

The mean of probabilities is large if that of any model is; the mean of log-probabilities only if all are.
The first is Stone's opinion pool, 1961 (papers.bib: stone1961opinion); the second a weighted product of
experts, Hinton 2002, eq. 1 (papers.bib: hinton2002training).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.arguments import as_number, items, one_of, set_fields
from unspool.decode.combine.lockstep import Lockstep
from unspool.interfaces import Step, StepModel


@dataclass(frozen=True)
class Ensemble(Lockstep):
    """Ensemble((a, b, c)): the weighted mean of models."""

    models: tuple[StepModel, ...]
    weights: tuple[float, ...] | None = None
    """One for each model, up to a factor; None for equal weights."""
    mean: str = "probability"
    """What is averaged: "probability" or "log_probability"."""

    def __post_init__(self) -> None:
        set_fields(self, models=items("Ensemble.models", self.models, "a list of models"))
        if not self.models:
            raise ValueError("the ensemble is empty: give at least one model")
        one_of("Ensemble.mean", self.mean, MEANS)
        if self.weights is not None:
            set_fields(self, weights=items("Ensemble.weights", self.weights, "a list of numbers, or None"))
            if len(self.weights) != len(self.models):
                raise ValueError(
                    f"{len(self.weights)} weights for {len(self.models)} models: give one for each model"
                )
            advice = "To leave a model out, do not name it."
            weights = tuple(
                as_number(f"Ensemble.weights[{place}]", weight, above=0, advice=advice)
                for place, weight in enumerate(self.weights)
            )
            set_fields(self, weights=weights)
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        return self.models

    def join(self, steps: Sequence[Step]) -> Step:
        """The mean, without hidden states, because those of different models are not comparable."""
        logp_MNV = torch.stack([step.logp_NV for step in steps])
        weights = self.weights or (1.0,) * len(steps)
        share_M = torch.tensor(weights, dtype=logp_MNV.dtype, device=logp_MNV.device) / sum(weights)
        return Step(MEANS[self.mean](logp_MNV, share_M))


def probability(logp_MNV: Tensor, share_M: Tensor) -> Tensor:
    """log Σ_m w_m p_m."""
    return torch.logsumexp(logp_MNV + share_M.log()[:, None, None], dim=0)


def log_probability(logp_MNV: Tensor, share_M: Tensor) -> Tensor:
    """Σ_m w_m log p_m, normalised."""
    sum_NV = (logp_MNV * share_M[:, None, None]).sum(dim=0)
    if bool((sum_NV.amax(dim=-1) == -math.inf).any()):
        raise ValueError(
            'every token has probability 0 for some model of the ensemble: use mean="probability"'
        )
    return torch.log_softmax(sum_NV, dim=-1)


MEANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "probability": probability,
    "log_probability": log_probability,
}
