"""What losses on attention share: they ask a model where its heads look, and average over real positions.

    L = Σ cost / Σ 1   over rows, positions, layers and heads

Both sums are divided by the number of layers and heads, so that the weight of a loss counts positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.objectives.hidden_places import texts_of
from unspool.protocols import (
    AttentionReading,
    AttentionStack,
    Clock,
    Loss,
    Objective,
    PreparedLoss,
    Trainable,
)


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
