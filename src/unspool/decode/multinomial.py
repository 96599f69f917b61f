"""Multinomial sampling: draw a token by inverting the cumulative distribution.

    y = min { i : Σ_{j≤i} p_j > u },   u uniform on [0, 1)

A row uses one number of its random stream, so that the rest of the batch does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step

CHUNK_SCORES = 1 << 20
"""Scores processed at a time, so that their float64 copies take little memory."""


@dataclass(frozen=True)
class Multinomial:
    """A sample from the distribution."""

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV)
        u_N, rows = draw_uniform(rngs, scores_NV), max(1, CHUNK_SCORES // scores_NV.shape[1])
        parts = zip(torch.split(scores_NV, rows), torch.split(u_N, rows), strict=True)
        return torch.cat([invert(part_RV.double().softmax(dim=-1), u_R) for part_RV, u_R in parts])


def draw_uniform(rngs: Sequence[Random], scores_NV: Tensor) -> Tensor:
    """(N) in [0, 1): one number from the random stream of each row, on the device of the scores."""
    return torch.tensor([rng.random() for rng in rngs], dtype=torch.float64, device=scores_NV.device)


def invert(weight_NV: Tensor, u_N: Tensor) -> Tensor:
    """(N, V) non-negative weights of any total, (N) in [0, 1) → (N): the token at that share of the mass."""
    upto_NV = weight_NV.double().cumsum(dim=-1)
    total_N = upto_NV[:, -1]
    # Strictly below the total despite rounding, so that the token has a positive weight.
    target_N = (u_N * total_N).minimum(total_N.nextafter(torch.zeros_like(total_N)))
    return torch.searchsorted(upto_NV, target_N[:, None], right=True)[:, 0]


def token_at(weight_V: Tensor, u: float) -> int:
    """`invert` for one row."""
    return int(invert(weight_V[None], torch.tensor([u], dtype=torch.float64, device=weight_V.device)))
