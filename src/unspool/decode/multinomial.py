"""Multinomial sampling: draw a token by inverting the cumulative sum in two levels.

    y = min { i : Σ_{j≤i} p_j > u },   u uniform on [0, 1)

The mass of each block of 256 tokens is summed first, then only the block that contains u is searched: one
pass over the vocabulary without a cumulative sum over all of it. A row uses one number of its random stream,
so that the rest of the batch does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step

BLOCK = 256
CHUNK_SCORES = 1 << 20
"""Scores processed at a time, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class Multinomial:
    """A sample from the distribution."""

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV)
        N, V = scores_NV.shape
        # softmax, not exp: exp of −∞ is several times slower on a CPU.
        mass_NB = torch.cat([masses(scores_NV[part].softmax(dim=-1)) for part in parts(N, V)])
        return seek(
            mass_NB,
            V,
            draw_uniform(rngs, scores_NV),
            lambda token_NC: scores_NV.gather(1, token_NC).double().softmax(dim=-1),
        )


def draw_uniform(rngs: Sequence[Random], scores_NV: Tensor) -> Tensor:
    """(N) in [0, 1): one number from the random stream of each row, on the device of the scores."""
    return torch.tensor([rng.random() for rng in rngs], dtype=torch.float64, device=scores_NV.device)


def parts(N: int, V: int) -> list[slice]:
    """The rows in chunks of `CHUNK_SCORES` scores."""
    rows = max(1, CHUNK_SCORES // V)
    return [slice(first, first + rows) for first in range(0, N, rows)]


def masses(weight_NV: Tensor) -> Tensor:
    """(N, V) → (N, B): the mass of every block of tokens, as doubles."""
    N, V = weight_NV.shape
    in_blocks = V - V % BLOCK
    mass_NB = weight_NV[:, :in_blocks].reshape(N, V // BLOCK, BLOCK).sum(dim=-1)
    if in_blocks < V:
        mass_NB = torch.cat([mass_NB, weight_NV[:, in_blocks:].sum(dim=-1, keepdim=True)], dim=-1)
    return mass_NB.double()


def invert(weight_NV: Tensor, u_N: Tensor) -> Tensor:
    """(N, V) non-negative weights of any total, (N) in [0, 1) → (N): the token at that share of the mass."""
    V = weight_NV.shape[1]
    return seek(masses(weight_NV), V, u_N, lambda token_NC: weight_NV.gather(1, token_NC))


def seek(mass_NB: Tensor, V: int, u_N: Tensor, weigh: Callable[[Tensor], Tensor]) -> Tensor:
    """(N): the same from the masses of the blocks, for weights that are not all in memory.

    `weigh` gives the weights of one block of every row, (N, C) token ids → (N, C), up to a factor of the row.
    """
    block_N, share_N = _descend(mass_NB, u_N)
    token_NC = block_N[:, None] * BLOCK + torch.arange(BLOCK, device=mass_NB.device)
    weight_NC = weigh(token_NC.clamp(max=V - 1)).double().masked_fill(token_NC >= V, 0)
    place_N, _ = _descend(weight_NC, share_N)
    return block_N * BLOCK + place_N


def _descend(mass_NB: Tensor, u_N: Tensor) -> tuple[Tensor, Tensor]:
    """The entry at the share u of the mass, and which share of that entry is below u."""
    upto_NB = mass_NB.cumsum(dim=-1)
    total_N = upto_NB[:, -1]
    # Strictly below the total despite rounding, so that the entry has a positive mass.
    target_N = (u_N * total_N).minimum(total_N.nextafter(torch.zeros_like(total_N)))
    entry_N1 = torch.searchsorted(upto_NB, target_N[:, None], right=True)
    mass_N = mass_NB.gather(1, entry_N1)[:, 0]
    before_N = upto_NB.gather(1, entry_N1)[:, 0] - mass_N
    # A share, not a mass, because the sum of the block is rounded.
    return entry_N1[:, 0], ((target_N - before_N) / mass_N).clamp(min=0)
