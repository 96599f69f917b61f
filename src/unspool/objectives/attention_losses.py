"""Attention losses: regularise the attention weights of a Transformer, by entropy or distance.

    L = Σ cost / Σ 1   over rows, positions, layers and heads

Both sums are divided by the number of layers and heads, so the weight of a loss counts positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unspool.checked_fields import Checked, number
from unspool.data.batch import Batch
from unspool.interfaces import (
    AttentionReading,
    AttentionStack,
    Clock,
    Loss,
    Objective,
    PreparedLoss,
    Trainable,
)
from unspool.objectives.masked import full_texts


class AttentionLoss(Objective):
    """Base class of attention losses; a subclass defines the cost of each position."""

    name: ClassVar[str]
    """The name in the stats."""
    free_layers: ClassVar[int] = 0
    """The number of last layers of each stack without cost."""
    watches = True

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): the cost of each head and position."""
        raise NotImplementedError

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over positions of the mean over layers and heads."""
        _, stacks = self.reading(model).read_attention(batch)
        total, weight = self.sums(stacks)
        return Loss(total, weight, {self.name: float(total.detach())})

    def sums(self, stacks: Sequence[AttentionStack]) -> tuple[Tensor, float]:
        """The sum of costs, and the number of positions to divide it by."""
        counted = [it.layers[: len(it.layers) - self.free_layers] for it in stacks]
        costs, positions, each = [], 0, 0
        for stack, layers in zip(stacks, counted, strict=True):
            for alpha_NHTT in layers:
                cost_NHT = self.cost(alpha_NHTT)
                real_NT = torch.arange(cost_NHT.shape[2], device=cost_NHT.device) < stack.lengths_N[:, None]
                costs.append(cost_NHT.masked_fill(~real_NT[:, None], 0.0).sum())
                positions += cost_NHT.shape[1] * int(stack.lengths_N.sum())
                each += cost_NHT.shape[1]
        return torch.stack(costs).sum() / each, positions / each

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        """The weight is the number of positions of `sums`."""
        sides = [it for it in (batch.source_lengths_N, batch.lengths_N) if it is not None]
        if model.infilling is not None:
            sides[-1] = full_texts(model, batch)[1]
        heads = [(layers - self.free_layers) * heads for layers, heads in self.reading(model).attention_heads]
        positions = sum(each * int(it.sum()) for each, it in zip(heads, sides, strict=True))
        return PreparedLoss(positions / sum(heads), lambda reader: self(reader, batch, clock))

    def check(self, model: Trainable) -> None:
        self.reading(model)

    def reading(self, model: Trainable) -> AttentionReading:
        """The attention-reading interface of the model."""
        if model.attention_reading is None:
            raise ValueError(
                f"an attention loss needs a Transformer, but {type(model).__name__} does not return "
                "attention weights: choose another model.kind (or encoder), or remove the loss"
            )
        return model.attention_reading


@dataclass(frozen=True)
class AttentionFocus(AttentionLoss):
    """Focused attention: the mean entropy of every head's attention, in nats.

        L_focus = 1/(K·T·L) Σ_{ℓ,k,t₁} H(α[ℓ,k,t₁,·]),   H(a) = −Σ_{t₂} a[t₂] ln a[t₂]

    McAllester's problems on attention, 1(b) (papers.bib: mcallester2020problems). Attention to one position
    costs 0, uniform attention to T positions ln T. K heads, T real positions, L layers; in an
    encoder–decoder, self-attention of both sides.
    """

    name: ClassVar[str] = "attention_focus"

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        return entropy(alpha_NHTT)


def entropy(alpha_NHTS: Tensor) -> Tensor:
    """(N, H, T): −Σ α ln α with 0 · ln 0 = 0 and zero gradient there."""
    least = torch.finfo(alpha_NHTS.dtype).tiny
    return -(alpha_NHTS * alpha_NHTS.clamp(min=least).log()).sum(dim=-1)


@dataclass(frozen=True)
class AttentionNear(Checked, AttentionLoss):
    """Local attention: the mean squared distance of attention up to a cap, except in the last layer.

        L_near = 1/(K·T·(L−1)) Σ_{k,t₁,ℓ≤L−2} min( L_max, Σ_{t₂} α[ℓ,k,t₁,t₂]·(t₁ − t₂)² )

    McAllester's problems on attention, 1(c) (papers.bib: mcallester2020problems). The cap makes the loss
    robust: beyond L_max the gradient is zero. The last layer of each stack is not included. K heads, T real
    positions, L layers; in an encoder–decoder, both sides.
    """

    cap: float = number(64.0, above=0)
    """L_max, the largest cost of a position. 64 corresponds to a distance of 8."""

    name: ClassVar[str] = "attention_near"
    free_layers: ClassVar[int] = 1

    def check(self, model: Trainable) -> None:
        super().check(model)
        stacks = [part for name, part in model.named_modules() if name.endswith("blocks")]  # type: ignore[attr-defined]
        if all(len(stack) < 2 for stack in stacks):
            raise ValueError(
                "attention_near excludes the last layer, but this model has only one: use more layers, "
                "or remove attention_near"
            )

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        return distance(alpha_NHTT).clamp(max=self.cap)


def distance(alpha_NHTT: Tensor) -> Tensor:
    """(N, H, T): Σ_{t₂} α (t₁ − t₂)²."""
    place_T = torch.arange(alpha_NHTT.shape[-1], device=alpha_NHTT.device, dtype=alpha_NHTT.dtype)
    return (alpha_NHTT * (place_T[:, None] - place_T).square()).sum(dim=-1)
