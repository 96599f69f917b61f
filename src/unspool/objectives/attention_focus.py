"""Attention that is focused: the mean entropy of where heads look is a loss.

    L_focus = 1/(K·T·L) Σ_{ℓ,k,t₁} H(α[ℓ,k,t₁,·]),   H(a) = −Σ_{t₂} a[t₂] ln a[t₂]

McAllester's problems on attention, 1(b) (papers.bib: mcallester2020problems). A head that looks at one
position costs 0, one that looks at T of them alike ln T. K heads, T real positions, L layers; of an
encoder–decoder, the layers of both sides, without its looks at the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.objectives.attention_losses import AttentionLoss


@dataclass(frozen=True)
class AttentionFocus(AttentionLoss):
    """The mean entropy of every head's attention, in nats."""

    name: ClassVar[str] = "attention_focus"

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): the entropy."""
        return entropy(alpha_NHTT)


def entropy(alpha_NHTS: Tensor) -> Tensor:
    """(N, H, T): −Σ α ln α, in which 0 · ln 0 is 0, and so is its gradient."""
    least = torch.finfo(alpha_NHTS.dtype).tiny
    return -(alpha_NHTS * alpha_NHTS.clamp(min=least).log()).sum(dim=-1)
