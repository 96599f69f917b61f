"""Min-p: keep the tokens that are not much less probable than the best one.

    keep x  ⇔  p(x) ≥ m · max p

Nguyen, Baker, Neo, Roush, Kirsch & Shwartz-Ziv 2025, §3.
papers.bib: nguyen2025minp

The most probable token always stays. m = 0 keeps everything, m = 1 the most probable tokens only.
Ties: equal probabilities are kept or cut together. The kept set is that of Hugging Face.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class MinP(Truncation):
    """Keep tokens at least m times as probable as the best."""

    m: float = 0.05

    def __post_init__(self) -> None:
        number(
            self,
            "m",
            at_least=0,
            at_most=1,
            advice="Common values are 0.02 … 0.2; 0 keeps everything.",
        )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ m · max p."""
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.m * p_NV.amax(dim=-1, keepdim=True)) & alive(logp_NV)
