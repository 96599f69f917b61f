"""Tail-free sampling: cut where the sorted probabilities stop bending.

    d_r = |p₍ᵣ₎ − 2p₍ᵣ₊₁₎ + p₍ᵣ₊₂₎|,   p₍₁₎ ≥ p₍₂₎ ≥ …
    keep ranks 1 and 2 ≤ r < V with  Σ_{s<r} d_s / Σ_s d_s ≤ z

Bricken 2019.
papers.bib: bricken2019tailfree

The curvature d_r belongs to rank r + 1, the middle one of the three it is computed from; so the first token
always stays and the last never does. z = 1 keeps everything (as in the tools that offer it), and so does a
row without curvature: a uniform one, or one of fewer than three tokens.
Ties: equal probabilities are ranked by id, the lower first. The whole vocabulary is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.rank_cuts import ascending, first
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TailFree(Truncation):
    """Keep the head of the distribution, up to the share z of its curvature."""

    z: float = 0.95

    def __post_init__(self) -> None:
        advice = "Common values are 0.9 … 0.99; 1 keeps everything."
        number(self, "z", above=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the head of each row."""
        if self.z == 1 or logp_NV.shape[1] < 3:
            return alive(logp_NV)
        logp_NV = precise(logp_NV)
        ranked_NV = ascending(logp_NV).flip(-1)
        bend_NC = ranked_NV.double().softmax(dim=-1).diff(n=2).abs()
        total_N1 = bend_NC.sum(dim=-1, keepdim=True)
        count_N = 1 + (bend_NC.cumsum(dim=-1) <= self.z * total_N1).sum(dim=-1)
        count_N = count_N.masked_fill(total_N1[:, 0] == 0, logp_NV.shape[1])
        return first(logp_NV, ranked_NV.gather(1, count_N[:, None] - 1), count_N) & alive(logp_NV)
