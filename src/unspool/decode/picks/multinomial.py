"""Draw a token from the distribution, by inverting its cumulative sum in two levels.

    y = min { i : Σ_{j≤i} p_j > u },   u uniform on [0, 1)

The mass of each block of 256 tokens is summed first, then only the block that u falls into is walked:
one pass over the vocabulary and no cumulative sum as long as it. A row uses one roll of its own dice, so
that what it draws does not depend on its batch-mates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.protocols import Step

BLOCK = 256


@dataclass(frozen=True)
class Multinomial:
    """A sample from the distribution."""

    def draw(self, scores_NV: Tensor, step: Step, dice: Sequence[Random]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N)."""
        u_N = torch.tensor([die.random() for die in dice], dtype=torch.float64, device=scores_NV.device)
        return invert(scores_NV.exp(), u_N)


def invert(weight_NV: Tensor, u_N: Tensor) -> Tensor:
    """(N, V) non-negative weights of any total, (N) in [0, 1) → (N): the token at that share of the mass."""
    N, V = weight_NV.shape
    if V > BLOCK:
        padded = F.pad(weight_NV, (0, -V % BLOCK)) if V % BLOCK else weight_NV
        block_NBC = padded.view(N, -1, BLOCK)
        mass_NB = block_NBC.sum(dim=-1, dtype=torch.float64)
        block_N, share_N = _descend(mass_NB, u_N * mass_NB.sum(dim=-1))
        inner_NC = block_NBC[torch.arange(N, device=weight_NV.device), block_N].double()
        inner_N, _ = _descend(inner_NC, share_N)
        return block_N * BLOCK + inner_N
    weight_NV = weight_NV.double()
    return _descend(weight_NV, u_N * weight_NV.sum(dim=-1))[0]


def _descend(mass_NB: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """The entry that the target falls into, and how far into it."""
    upto_NB = mass_NB.cumsum(dim=-1)
    # Rounding may push a target past the end or onto an entry of no mass: the last one with mass takes it.
    last_N = mass_NB.shape[-1] - 1 - (mass_NB > 0).flip(-1).int().argmax(dim=-1)
    entry_N = torch.searchsorted(upto_NB, target_N[:, None], right=True).squeeze(-1)
    entry_N = torch.minimum(entry_N, last_N)
    before_N = (upto_NB - mass_NB).gather(1, entry_N[:, None]).squeeze(-1)
    return entry_N, target_N - before_N
