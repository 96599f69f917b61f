"""Gradient checkpointing: a layer keeps what goes into it, and computes all else again for its gradient.

    memory of L layers   L · (all it computes)   →   L · (what goes in) + (all that one computes)
    time                 forward + backward      →   2 · forward + backward

Chen et al. 2016, §4 (papers.bib: chen2016training). The gradient is the same to the bit, dropout included.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Recomputable(nn.Module):
    """A layer that may compute again what it has forgotten."""

    recomputes = False
    """Whether it does: `recompute` says so."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """`forward`, of which nothing but the inputs is kept where it recomputes."""
        if not (self.recomputes and torch.is_grad_enabled()):
            return super().__call__(*inputs, **named)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(super().__call__, *inputs, use_reentrant=False, **named)


def recompute(model: nn.Module) -> None:
    """Let every layer of the model recompute in its backward pass."""
    layers = [part for part in model.modules() if isinstance(part, Recomputable)]
    if not layers:
        raise ValueError(
            f"train.recompute is for models of Transformer blocks, and a {type(model).__name__} has none: "
            "leave it out"
        )
    for layer in layers:
        layer.recomputes = True
