"""Top-nσ: keep the tokens within n standard deviations of the best logit.

    keep x  ⇔  l(x) ≥ max l − n·σ,     σ² = 1/V Σ (l − l̄)²

Tang, Liu, Xu & Huang 2024 (algorithm 1).
papers.bib: tang2024topnsigma

Logits are known only up to a constant, and σ and max l − l do not depend on it: log-probabilities serve. The
kept set does not change with a temperature before it.
Ties: equal probabilities are kept or cut together; the most probable token always stays.
Differs from the paper: tokens already cut (−∞) count neither in V nor in σ (llama.cpp does the same), and
σ divides by V where the authors' code divides by V − 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TopNSigma(Truncation):
    """Keep tokens whose logit is at least max − n·σ."""

    n: float = 1.0

    def __post_init__(self) -> None:
        number(self, "n", above=0, advice="Common values are 1 … 2; larger keeps more.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True within n standard deviations of the best."""
        logp_NV = precise(logp_NV)
        alive_NV = alive(logp_NV)
        below_NV = logp_NV.amax(dim=-1, keepdim=True) - logp_NV
        counted_NV = below_NV.masked_fill(~alive_NV, 0)
        size_N1 = alive_NV.sum(dim=-1, keepdim=True)
        mean_N1 = counted_NV.sum(dim=-1, keepdim=True, dtype=torch.float64) / size_N1
        norm_N1: Tensor = torch.linalg.vector_norm(counted_NV, dim=-1, keepdim=True, dtype=torch.float64)
        sigma_N1 = (norm_N1.square() / size_N1 - mean_N1.square()).clamp(min=0).sqrt()
        return (below_NV <= self.n * sigma_N1) & alive_NV
