"""Attention that stays near: the mean squared distance of where heads look is a loss, up to a cap.

    L_near = 1/(K·T·(L−1)) Σ_{k,t₁,ℓ≤L−2} min( L_max, Σ_{t₂} α[ℓ,k,t₁,t₂]·(t₁ − t₂)² )

McAllester's problems on attention, 1(c) (papers.bib: mcallester2020problems). The cap makes the loss robust:
a look far away costs no more than L_max, and has no gradient. The last layer is left free. K heads, T real
positions, L layers; of an encoder–decoder, the layers of both sides, each side without its last one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.objectives.attention_losses import AttentionLoss, mean_over_positions
from unspool.protocols import AttentionStack, Clock, Loss, Trainable


@dataclass(frozen=True)
class AttentionNear(AttentionLoss):
    """The mean squared distance of every head's attention, up to a cap, without the last layer."""

    cap: float = 64.0
    """L_max: no position costs more, however far it looks. 64 is a distance of 8."""

    def __post_init__(self) -> None:
        if not 0.0 < self.cap < math.inf:
            raise ValueError(f"cap={self.cap} must be above 0, and finite")

    def check(self, model: Trainable) -> None:
        """Refuse a model without attention, or with nothing below its last layer."""
        super().check(model)
        stacks = [part for name, part in model.named_modules() if name.endswith("blocks")]  # type: ignore[attr-defined]
        if all(len(stack) < 2 for stack in stacks):
            raise ValueError(
                "attention_near leaves the last layer free, and this model has no other: give it two layers "
                "or more, or leave attention_near out"
            )

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The mean, as often as the batch has targets: beside a sum over targets it has weight 1."""
        _, stacks = self.reading(model).read_attention(batch)
        total = near(stacks, self.cap) * batch.weight
        return Loss(total, batch.weight, {"attention_near": float(total.detach())})


def near(stacks: tuple[AttentionStack, ...], cap: float) -> Tensor:
    """The mean over all layers but the last, heads and real positions."""
    return mean_over_positions(
        [(distance(alpha).clamp(max=cap), it.lengths_N) for it in stacks for alpha in it.layers[:-1]]
    )


def distance(alpha_NHTT: Tensor) -> Tensor:
    """(N, H, T): Σ_{t₂} α (t₁ − t₂)²."""
    place_T = torch.arange(alpha_NHTT.shape[-1], device=alpha_NHTT.device, dtype=alpha_NHTT.dtype)
    return (alpha_NHTT * (place_T[:, None] - place_T).square()).sum(dim=-1)
