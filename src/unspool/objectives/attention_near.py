"""Attention that stays near: the mean squared distance of where heads look is a loss, up to a cap.

    L_near = 1/(K·T·(L−1)) Σ_{k,t₁,ℓ≤L−2} min( L_max, Σ_{t₂} α[ℓ,k,t₁,t₂]·(t₁ − t₂)² )

McAllester's problems on attention, 1(c) (papers.bib: mcallester2020problems). The cap makes the loss robust:
a look far away costs no more than L_max, and has no gradient. The last layer is left free. K heads, T real
positions, L layers; of an encoder–decoder, the layers of both sides, each side without its last one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.objectives.attention_losses import AttentionLoss
from unspool.protocols import Trainable


@dataclass(frozen=True)
class AttentionNear(AttentionLoss):
    """The mean squared distance of every head's attention, up to a cap, without the last layer."""

    cap: float = 64.0
    """L_max: no position costs more, however far it looks. 64 is a distance of 8."""

    name: ClassVar[str] = "attention_near"
    free_layers: ClassVar[int] = 1

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

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): the distance, up to the cap."""
        return distance(alpha_NHTT).clamp(max=self.cap)


def distance(alpha_NHTT: Tensor) -> Tensor:
    """(N, H, T): Σ_{t₂} α (t₁ − t₂)²."""
    place_T = torch.arange(alpha_NHTT.shape[-1], device=alpha_NHTT.device, dtype=alpha_NHTT.dtype)
    return (alpha_NHTT * (place_T[:, None] - place_T).square()).sum(dim=-1)
