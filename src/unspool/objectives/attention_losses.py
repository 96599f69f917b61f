"""What losses on attention share: they ask a model where its heads look, and average over real positions.

    L = Σ cost / Σ 1   over rows, positions, layers and heads

Both sums are divided by the number of layers and heads, so that the weight of a loss counts positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

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
from unspool.objectives.masked import texts_of


class AttentionLoss(Objective):
    """A loss on where the heads of a Transformer look: a subclass says what each position costs."""

    name: ClassVar[str]
    """Of its number in the curves."""
    free_layers: ClassVar[int] = 0
    """Layers that cost nothing, the last ones of each stack."""

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): what a head costs at each position."""
        raise NotImplementedError

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over positions, of the mean over layers and heads."""
        _, stacks = self.reading(model).read_attention(batch)
        total, weight = self.sums(stacks)
        return Loss(total, weight, {self.name: float(total.detach())})

    def sums(self, stacks: Sequence[AttentionStack]) -> tuple[Tensor, float]:
        """The sum of costs, and the positions that it is to be divided by."""
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
        """Count the positions, which are those of `sums`."""
        sides = [it for it in (batch.source_lengths_N, batch.lengths_N) if it is not None]
        if model.infilling is not None:
            sides[-1] = texts_of(model, batch)[1]
        heads = [(layers - self.free_layers) * heads for layers, heads in self.reading(model).attention_heads]
        positions = sum(each * int(it.sum()) for each, it in zip(heads, sides, strict=True))
        return PreparedLoss(positions / sum(heads), lambda reader: self(reader, batch, clock))

    @property
    def watches(self) -> bool:
        """It is what it is there for."""
        return True

    def check(self, model: Trainable) -> None:
        """Refuse a model without attention."""
        self.reading(model)

    def reading(self, model: Trainable) -> AttentionReading:
        """The model's ability to tell where its heads look."""
        if model.attention_reading is None:
            raise ValueError(
                f"a loss on attention needs a Transformer; a {type(model).__name__} has no heads, or does "
                "not tell where they look: choose another model.kind (or encoder), or leave the loss out"
            )
        return model.attention_reading


@dataclass(frozen=True)
class AttentionFocus(AttentionLoss):
    """The mean entropy of every head's attention, in nats.

    Attention that is focused: the mean entropy of where heads look is a loss.

        L_focus = 1/(K·T·L) Σ_{ℓ,k,t₁} H(α[ℓ,k,t₁,·]),   H(a) = −Σ_{t₂} a[t₂] ln a[t₂]

    McAllester's problems on attention, 1(b) (papers.bib: mcallester2020problems). A head that looks at one
    position costs 0, one that looks at T of them alike ln T. K heads, T real positions, L layers; of an
    encoder–decoder, the layers of both sides, without its looks at the source.
    """

    name: ClassVar[str] = "attention_focus"

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): the entropy."""
        return entropy(alpha_NHTT)


def entropy(alpha_NHTS: Tensor) -> Tensor:
    """(N, H, T): −Σ α ln α, in which 0 · ln 0 is 0, and so is its gradient."""
    least = torch.finfo(alpha_NHTS.dtype).tiny
    return -(alpha_NHTS * alpha_NHTS.clamp(min=least).log()).sum(dim=-1)


@dataclass(frozen=True)
class AttentionNear(AttentionLoss):
    """The mean squared distance of every head's attention, up to a cap, without the last layer.

    Attention that stays near: the mean squared distance of where heads look is a loss, up to a cap.

        L_near = 1/(K·T·(L−1)) Σ_{k,t₁,ℓ≤L−2} min( L_max, Σ_{t₂} α[ℓ,k,t₁,t₂]·(t₁ − t₂)² )

    McAllester's problems on attention, 1(c) (papers.bib: mcallester2020problems). The cap makes the loss
    robust: a look far away costs no more than L_max, and has no gradient. The last layer is left free. K
    heads, T real positions, L layers; of an encoder–decoder, the layers of both sides, each side without its
    last one.
    """

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
