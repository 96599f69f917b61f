"""p-less: keep the tokens at least as probable as two independent draws are to agree.

    keep x  ⇔  p(x) ≥ L,     L = Σ p²               (p-less)
                             L = (V·Σ p² − 1)/(V − 1)   (p-less-norm, milder)

Tan, Wu & Howard 2025 (L[P], and its normalised variant).
papers.bib: tan2025pless

No parameter to tune: L lies between 1/V (uniform: everything stays) and 1 (one token), and never above max p,
so the most probable token always stays. Ties: equal probabilities are kept or cut together.
V counts the whole vocabulary, tokens already cut included.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import flag
from unspool.decode.transforms.scores import alive
from unspool.decode.transforms.truncation import Truncation

ROUNDING = 1e-9
"""Rounding must not cut the tokens of a uniform row, where p = L."""


@dataclass(frozen=True)
class PLess(Truncation):
    """Keep tokens of probability Σ p² or more."""

    norm: bool = False

    def __post_init__(self) -> None:
        flag(self, "norm", advice="True is the milder p-less-norm; there is nothing else to set.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p reaches the collision probability."""
        p_NV = logp_NV.double().softmax(dim=-1)
        threshold_N1 = p_NV.square().sum(dim=-1, keepdim=True)
        V = logp_NV.shape[1]
        if self.norm and V > 1:
            threshold_N1 = (V * threshold_N1 - 1) / (V - 1)
        return (p_NV >= threshold_N1 * (1 - ROUNDING)) & alive(logp_NV)
