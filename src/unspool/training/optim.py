"""AdamW, and learning-rate schedules.

    m ← β₁m + (1−β₁)g,   v ← β₂v + (1−β₂)g²,   w ← w − η·( m̂/(√v̂ + ε) + λw ),   m̂ = m/(1−β₁ᵗ),  v̂ = v/(1−β₂ᵗ)

Loshchilov & Hutter 2019, algorithm 2 (papers.bib: loshchilov2019decoupled). m is `exp_avg`, v `exp_avg_sq`,
t the number of the update. Only matrices decay (λ), not gains and biases.

torch's fused kernel is deterministic. It is called through the function `adamw`, because the class AdamW
imports torch's compiler (seconds) and keeps a step count for every tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from unspool.arguments import Checked, integer, number
from unspool.training.settings import TrainSettings


class AdamW:
    """The optimizer of all trainable parameters."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]], settings: TrainSettings) -> None:
        self.named = {name: p for name, p in parameters if p.requires_grad}
        if not self.named:
            raise ValueError("the model has no trainable parameters: requires_grad is False for all of them")
        self.settings = settings
        self.state: dict[Tensor, dict[str, Tensor]] = {
            p: {name: torch.zeros_like(p, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
            for p in self.named.values()
        }

    def zero_grad(self) -> None:
        for p in self.state:
            p.grad = None

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.state if p.grad is not None]

    @torch.no_grad()
    def step(self, t: int, lr: float) -> None:
        """Update every parameter with a gradient; t is 1 for the first update."""
        for decays in (True, False):
            some = [p for p in self.state if p.grad is not None and (p.ndim >= 2) == decays]
            if not some:
                continue
            # The kernel increments the step counts; they share one tensor.
            before = torch.full((len(some),), t - 1.0, device=some[0].device)
            adamw(
                some,
                [p.grad for p in some if p.grad is not None],
                [self.state[p]["exp_avg"] for p in some],
                [self.state[p]["exp_avg_sq"] for p in some],
                [],
                list(before.unbind()),
                fused=True,
                lr=lr,
                beta1=self.settings.betas[0],
                beta2=self.settings.betas[1],
                weight_decay=self.settings.weight_decay if decays else 0.0,
                eps=self.settings.eps,
                amsgrad=False,
                maximize=False,
            )
            # The kernel does not increment versions, on which caches of derived weights depend.
            torch.autograd.graph.increment_version(some)

    def moments(self) -> dict[str, Tensor]:
        """Return the moments as `parameter/moment`, for a checkpoint."""
        return {
            f"{name}/{what}": tensor
            for name, p in self.named.items()
            for what, tensor in self.state[p].items()
        }

    @torch.no_grad()
    def remember(self, moments: Mapping[str, Tensor]) -> None:
        for name, tensor in self.moments().items():
            tensor.copy_(moments[name])


# Learning rate as a share of its peak, after a linear warm-up of w updates.
#
#     constant        min(t/w, 1)
#     inverse_sqrt    min(t/w, √(w/t))                               Vaswani et al. 2017, eq. 3, with peak 1
#     cosine  t/w, then f + (1 − f)·(1 + cos(π·(t − w)/(T − w)))/2  Loshchilov & Hutter 2017, eq. 5
#
# t = 1, 2, …, T counts updates (papers.bib: vaswani2017attention, loshchilov2017sgdr). Differs from the
# papers: inverse_sqrt leaves the peak to the setting `lr`, where Vaswani et al. derive it from width and
# warm-up; cosine falls once, with no restarts, to the share f of the peak.


Schedule = Callable[[int, int], float]
"""(update, updates of the whole run) → share of the peak."""


class Warmup(Checked):
    """Linear warm-up to the peak; the base class of schedules."""

    warmup = 0

    def __call__(self, update: int, updates: int) -> float:  # noqa: ARG002
        """Return the share of the peak at this update (1 is the first)."""
        return min(1.0, update / self.warmup) if self.warmup else 1.0


@dataclass(frozen=True)
class Constant(Warmup):
    """Constant after the warm-up."""

    warmup: int = integer(0, at_least=0)
    """Updates until the peak is reached."""


@dataclass(frozen=True)
class InverseSqrt(Warmup):
    """Decay with the inverse square root of the update, independent of the run's length."""

    warmup: int = integer(400, at_least=1)
    """Updates until the peak is reached."""

    def __call__(self, update: int, updates: int) -> float:  # noqa: ARG002
        return min(update / self.warmup, math.sqrt(self.warmup / update))


@dataclass(frozen=True)
class Cosine(Warmup):
    """Cosine decay from the peak to `floor` at the end of the run."""

    warmup: int = integer(100, at_least=0)
    """Updates until the peak is reached."""
    floor: float = number(0.1, at_least=0, at_most=1)
    """Share of the peak at the end of the run."""

    def __call__(self, update: int, updates: int) -> float:
        if update <= self.warmup:
            return super().__call__(update, updates)
        way = min(1.0, (update - self.warmup) / max(1, updates - self.warmup))
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * way))


SCHEDULES: dict[str, type[Warmup]] = {"constant": Constant, "cosine": Cosine, "inverse_sqrt": InverseSqrt}
