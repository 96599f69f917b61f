"""Scheduled sampling: some of the tokens that the model reads are its own, more of them as it learns.

    x̃_t = x_t with probability ε_i, else a draw from p(· | x̃_{<t});   L = −Σ_t log p(x_t | x̃_{<t})

Bengio et al. 2015, §2.3 (papers.bib: bengio2015scheduled); for Transformers, in two parallel passes,
Mihaylova & Martins 2019, §3 (papers.bib: mihaylova2019scheduled): the first reads the right tokens, and draws
are made from what it says; the second reads the mixture and is learnt from.

With more `rounds` the draws are made again, with the same dice, from what was said of the mixture: after k of
them the first k tokens are those that one would have drawn step by step, so that with as many as a row is
long this is the first paper's own, for any model. What nobody has drawn is not learnt through: gradients flow
in the last pass only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unspool.config import choose, to_kind_dict
from unspool.data.batch import Batch, RandomStream
from unspool.interfaces import Clock, Loss, Objective, Trainable
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.masked import refuse_hidden_places

# How the share of right tokens falls while a model learns to go on from its own.
#
#     linear            ε_i = max(ε, k − c·i)
#     exponential       ε_i = kⁱ
#     inverse_sigmoid   ε_i = k / (k + exp(i/k))
#
# Bengio et al. 2015, §2.4 (papers.bib: bengio2015scheduled). i is the number of updates so far.


@dataclass(frozen=True)
class Linear:
    """From `begin` down by `slope` an update, to `floor`."""

    begin: float = 1.0
    slope: float = 1e-3
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= self.begin <= 1.0:
            raise ValueError(f"floor={self.floor} and begin={self.begin} must be 0 ≤ floor ≤ begin ≤ 1")
        if not 0.0 <= self.slope < math.inf:
            raise ValueError(f"slope={self.slope} must be at least 0, and finite")

    def __call__(self, update: int) -> float:
        """max(ε, k − c·i)."""
        return max(self.floor, self.begin - self.slope * update)


@dataclass(frozen=True)
class Exponential:
    """Times k an update."""

    k: float = 0.999

    def __post_init__(self) -> None:
        if not 0.0 <= self.k <= 1.0:
            raise ValueError(f"k={self.k} must be from 0 to 1")

    def __call__(self, update: int) -> float:
        """kⁱ."""
        return float(self.k**update)


@dataclass(frozen=True)
class InverseSigmoid:
    """Slow at first, then fast, then slow: half is reached at k·ln k updates."""

    k: float = 100.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.k < math.inf:
            raise ValueError(f"k={self.k} must be at least 1, and finite")

    def __call__(self, update: int) -> float:
        """k / (k + exp(i/k))."""
        grown = update / self.k
        return self.k / (self.k + math.exp(grown)) if grown < 700 else 0.0


DECAYS: dict[str, type[Any]] = {
    "exponential": Exponential,
    "inverse_sigmoid": InverseSigmoid,
    "linear": Linear,
}


CELLS = 1 << 22
"""Probabilities held at once."""


@dataclass(frozen=True)
class ScheduledSampling(Objective):
    """−log p of the right tokens, after rows in which some are the model's own."""

    decay: dict[str, Any] = field(default_factory=lambda: {"kind": "inverse_sigmoid"})
    """How the share of right tokens falls: linear (begin, slope, floor), exponential (k) or inverse_sigmoid
    (k), in updates."""
    rounds: int = 1
    """Passes before the one that is learnt from: 1 is the two-pass way, as many as a row is long the exact
    one."""
    smoothing: float = 0.0
    """The share of probability that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", to_kind_dict(DECAYS, self.share))
        CrossEntropy(self.smoothing)
        if self.rounds < 1:
            raise ValueError(f"rounds={self.rounds} must be at least 1")

    @property
    def draws(self) -> bool:
        """Which tokens are its own, and which tokens these are."""
        return True

    @cached_property
    def share(self) -> Any:
        """ε, a function of the update."""
        return choose(DECAYS, self.decay, "objective.decay")

    def check(self, model: Trainable) -> None:
        """Refuse a model that reads no tokens of its own."""
        refuse_hidden_places(model, self)
        if model.labels is not None:
            raise ValueError(
                f"scheduled_sampling has a model read what it says, and a {type(model).__name__} says "
                "labels: choose cross_entropy"
            )

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """The sum over the batch; stats has how many tokens were the model's own, for each target."""
        own_NT = batch.uniform(batch.inputs_NT.shape[1], RandomStream.OWN_TOKENS) >= self.share(clock.update)
        own_NT &= inside(batch)
        found = CrossEntropy(self.smoothing)(model, self.mixed(model, batch, own_NT), clock)
        return replace(found, stats={**found.stats, "own_tokens": float(own_NT.sum())})

    @torch.no_grad()
    def mixed(self, model: Trainable, batch: Batch, own_NT: Tensor) -> Batch:
        """The batch with the model's own tokens where `own_NT` says so."""
        if not bool(own_NT.any()):
            return batch
        dice_NT, now = batch.uniform(own_NT.shape[1], RandomStream.TOKEN), batch
        for _ in range(min(self.rounds, own_NT.shape[1])):
            said_NT = drawn(model, now, dice_NT)
            # What the model says at t − 1 is what it reads at t.
            shifted_NT = torch.cat([batch.inputs_NT[:, :1], said_NT[:, :-1]], dim=1)
            inputs_NT = torch.where(own_NT, shifted_NT, batch.inputs_NT)
            if torch.equal(inputs_NT, now.inputs_NT):
                break
            now = replace(batch, inputs_NT=inputs_NT)
        return now


def inside(batch: Batch) -> Tensor:
    """(N, T): what a model could have said: real tokens after the first."""
    place_T = torch.arange(batch.inputs_NT.shape[1], device=batch.inputs_NT.device)
    return (place_T > 0) & (place_T < batch.lengths_N[:, None])


def drawn(model: Trainable, batch: Batch, dice_NT: Tensor) -> Tensor:
    """(N, T): a token from each of the model's distributions, by the place of the dice in its sum."""
    hidden_MD = model.hidden_for(batch).flatten(0, 1)
    rows = max(1, CELLS // int(model.vocab_size))  # type: ignore[attr-defined]
    found = []
    dice_M = dice_NT.flatten()
    for at in range(0, len(hidden_MD), rows):
        dice_R, sums_RV = dice_M[at : at + rows], model.head(hidden_MD[at : at + rows]).exp().cumsum(dim=1)
        place_R1 = torch.searchsorted(sums_RV, dice_R[:, None] * sums_RV[:, -1:], right=True)
        found.append(place_R1[:, 0].clamp(max=sums_RV.shape[1] - 1))
    return torch.cat(found).view_as(dice_NT)
