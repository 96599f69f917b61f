"""AdamW: Adam's step, and a decay of the weights that is no part of the gradient.

    m ← β₁m + (1−β₁)g,   v ← β₂v + (1−β₂)g²,   w ← w − η·( m̂/(√v̂ + ε) + λw )

Loshchilov & Hutter 2019, algorithm 2 (papers.bib: loshchilov2019decoupled). Only matrices decay (λ): gains
and biases have nothing to gain from being small. torch's fused kernel makes one pass over the weights and
gives the same bits every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from unspool.train.settings import TrainSettings


def adamw(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """The optimizer of all parameters that learn."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learning:
        raise ValueError("the model has no parameter that learns: requires_grad is False for all of them")
    groups = [
        {"params": [it for it in learning if it.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [it for it in learning if it.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        betas=(settings.betas[0], settings.betas[1]),
        eps=settings.eps,
        fused=True,
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The same learning rate for all groups."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer remembers, as `parameter/what`: for a checkpoint."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
