"""Epsilon sampling: keep the tokens above a fixed probability.

    keep x  ⇔  p(x) ≥ ε  or  p(x) = max p

Hewitt, Manning & Liang 2022 (ε-sampling).
papers.bib: hewitt2022truncation

Ties: equal probabilities are kept or cut together; where every token is below ε, all that tie for the most
probable stay. The kept set is that of Hugging Face.
Differs from the paper: a token of probability exactly ε stays (the paper writes p > ε).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class Epsilon(Truncation):
    """Keep tokens of probability ε or more."""

    epsilon: float = 6e-4

    def __post_init__(self) -> None:
        advice = "Common values are 3e-4 … 9e-4; 0 keeps everything."
        number(self, "epsilon", at_least=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ ε, and for the most probable tokens."""
        logp_NV = precise(logp_NV)
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= self.epsilon) & alive(logp_NV) | best_NV
