"""Attention that is focused: the mean entropy of where heads look is a loss.

    L_focus = 1/(K·T·L) Σ_{ℓ,k,t₁} H(α[ℓ,k,t₁,·]),   H(a) = −Σ_{t₂} a[t₂] ln a[t₂]

McAllester's problems on attention, 1(b) (papers.bib: mcallester2020problems). A head that looks at one
position costs 0, one that looks at T of them alike ln T. K heads, T real positions, L layers; of an
encoder–decoder, the layers of both sides, without its looks at the source.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.objectives.attention_losses import AttentionLoss, mean_over_positions
from unspool.protocols import AttentionStack, Clock, Loss, Trainable


@dataclass(frozen=True)
class AttentionFocus(AttentionLoss):
    """The mean entropy of every head's attention, in nats."""

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The mean, as often as the batch has targets: beside a sum over targets it has weight 1."""
        _, stacks = self.reading(model).read_attention(batch)
        total = focus(stacks) * batch.weight
        return Loss(total, batch.weight, {"attention_focus": float(total.detach())})


def focus(stacks: tuple[AttentionStack, ...]) -> Tensor:
    """The mean entropy over layers, heads and real positions."""
    return mean_over_positions([(entropy(alpha), it.lengths_N) for it in stacks for alpha in it.layers])


def entropy(alpha_NHTS: Tensor) -> Tensor:
    """(N, H, T): −Σ α ln α, in which 0 · ln 0 is 0, and so is its gradient."""
    least = torch.finfo(alpha_NHTS.dtype).tiny
    return -(alpha_NHTS * alpha_NHTS.clamp(min=least).log()).sum(dim=-1)
