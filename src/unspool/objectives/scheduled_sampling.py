"""Scheduled sampling: a growing share of the input tokens is sampled from the model.

    x̃_t = x_t with probability ε_i, else a draw from p(· | x̃_{<t});   L = −Σ_t log p(x_t | x̃_{<t})

Bengio et al. 2015, §2.3 (papers.bib: bengio2015scheduled); for Transformers, in two parallel passes,
Mihaylova & Martins 2019, §3 (papers.bib: mihaylova2019scheduled): the first pass reads the true tokens and
samples from its predictions; the second reads the mixture and is trained.

With more `rounds` the tokens are sampled again from the predictions on the mixture, with the same random
numbers. After k rounds the first k tokens equal those of step-by-step sampling, so as many rounds as tokens
give the first paper's method for any model. Gradients flow only through the last pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import Checked, integer, number
from unspool.config import choose, to_kind_dict
from unspool.data.batch import Batch, RandomStream
from unspool.interfaces import Clock, Loss, Objective, Trainable
from unspool.objectives.cross_entropy import MAX_SCORES, CrossEntropy
from unspool.objectives.masked import check_generates_text

# Decays of the share ε_i of true tokens after i updates: Bengio et al. 2015, §2.4 (papers.bib:
# bengio2015scheduled).


@dataclass(frozen=True)
class Linear(Checked):
    """ε_i = max(ε, k − c·i): from `begin` down by `slope` per update to `floor`."""

    begin: float = number(1.0, at_least=0, at_most=1)
    slope: float = number(1e-3, at_least=0)
    floor: float = number(0.0, at_least=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.floor > self.begin:
            raise ValueError(f"floor={self.floor} is above begin={self.begin}: the share can only fall")

    def __call__(self, update: int) -> float:
        return max(self.floor, self.begin - self.slope * update)


@dataclass(frozen=True)
class Exponential(Checked):
    """ε_i = kⁱ."""

    k: float = number(0.999, at_least=0, at_most=1)

    def __call__(self, update: int) -> float:
        return float(self.k**update)


@dataclass(frozen=True)
class InverseSigmoid(Checked):
    """ε_i = k / (k + exp(i/k)): one half at k·ln k updates."""

    k: float = number(100.0, at_least=1)

    def __call__(self, update: int) -> float:
        exponent = update / self.k
        return self.k / (self.k + math.exp(exponent)) if exponent < 700 else 0.0


DECAYS: dict[str, type[Any]] = {
    "exponential": Exponential,
    "inverse_sigmoid": InverseSigmoid,
    "linear": Linear,
}


@dataclass(frozen=True)
class ScheduledSampling(Checked, Objective):
    """−log p of the true tokens, given rows in which some tokens are sampled from the model."""

    decay: dict[str, Any] = field(default_factory=lambda: {"kind": "inverse_sigmoid"})
    """Decay of the share of true tokens: linear (begin, slope, floor), exponential or inverse_sigmoid (k)."""
    rounds: int = integer(1, at_least=1)
    """Sampling passes before the training pass: 1 is the two-pass method, as many as tokens is exact."""
    smoothing: float = number(0.0, at_least=0, below=1)
    """The share of probability spread over the whole vocabulary."""

    needs_row_seeds = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "decay", to_kind_dict(DECAYS, self.share))

    @cached_property
    def share(self) -> Any:
        """ε as a function of the update."""
        return choose(DECAYS, self.decay, "objective.decay")

    def check(self, model: Trainable) -> None:
        check_generates_text(model, self)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """The sum over the batch; stats has the number of sampled tokens, "own_tokens"."""
        is_own_NT = batch.uniform(batch.inputs_NT.shape[1], RandomStream.OWN_TOKENS) >= self.share(
            clock.update
        )
        is_own_NT &= is_replaceable(batch)
        loss = CrossEntropy(self.smoothing)(model, self.mix_tokens(model, batch, is_own_NT), clock)
        return replace(loss, stats={**loss.stats, "own_tokens": float(is_own_NT.sum())})

    @torch.no_grad()
    def mix_tokens(self, model: Trainable, batch: Batch, is_own_NT: Tensor) -> Batch:
        """The batch with the model's own tokens where `is_own_NT` says so."""
        if not bool(is_own_NT.any()):
            return batch
        uniform_NT, now = batch.uniform(is_own_NT.shape[1], RandomStream.TOKEN), batch
        for _ in range(min(self.rounds, is_own_NT.shape[1])):
            drawn_NT = sample_tokens(model, now, uniform_NT)
            # The prediction at t − 1 is the input at t.
            shifted_NT = torch.cat([batch.inputs_NT[:, :1], drawn_NT[:, :-1]], dim=1)
            inputs_NT = torch.where(is_own_NT, shifted_NT, batch.inputs_NT)
            if torch.equal(inputs_NT, now.inputs_NT):
                break
            now = replace(batch, inputs_NT=inputs_NT)
        return now


def is_replaceable(batch: Batch) -> Tensor:
    """(N, T): True on real tokens after the first."""
    place_T = torch.arange(batch.inputs_NT.shape[1], device=batch.inputs_NT.device)
    return (place_T > 0) & (place_T < batch.lengths_N[:, None])


def sample_tokens(model: Trainable, batch: Batch, uniform_NT: Tensor) -> Tensor:
    """(N, T): a token sampled from each predicted distribution, by inversion of uniform numbers."""
    hidden_MD = model.hidden_for(batch).flatten(0, 1)
    rows = max(1, MAX_SCORES // model.vocab_size)
    drawn = []
    pieces = torch.split(hidden_MD, rows), torch.split(uniform_NT.flatten(), rows)
    for hidden_RD, uniform_R in zip(*pieces, strict=True):
        sums_RV = model.head(hidden_RD).exp().cumsum(dim=1)
        place_R1 = torch.searchsorted(sums_RV, uniform_R[:, None] * sums_RV[:, -1:], right=True)
        drawn.append(place_R1[:, 0].clamp(max=sums_RV.shape[1] - 1))
    return torch.cat(drawn).view_as(uniform_NT)
