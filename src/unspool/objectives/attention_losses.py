"""What losses on attention share: they ask a model where its heads look, and average over real positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.protocols import AttentionReading, Objective, Trainable


class AttentionLoss(Objective):
    """A loss on where the heads of a Transformer look."""

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


def mean_over_positions(costs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Σ over layers, heads and real positions of costs (N, H, T), by their number; lengths (N) with each."""
    total, count = [], 0
    for cost_NHT, lengths_N in costs:
        _, H, T = cost_NHT.shape
        real_NT = torch.arange(T, device=cost_NHT.device) < lengths_N[:, None]
        total.append(cost_NHT.masked_fill(~real_NT[:, None], 0.0).sum())
        count += H * int(lengths_N.sum())
    return torch.stack(total).sum() / count
