"""Top-a: a threshold that grows with the square of the best probability.

    keep x  ⇔  p(x) ≥ a · (max p)²

BlinkDL 2022 (RWKV-LM, "top-a sampling", a = 0.2 there).
papers.bib: blinkdl2022topa

Where the model is sure, little but the best survives; where it is not, almost everything does. a = 0 keeps
everything. Ties: equal probabilities are kept or cut together; the most probable token always stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TopA(Truncation):
    """Keep tokens of probability a · (max p)² or more."""

    a: float = 0.2

    def __post_init__(self) -> None:
        number(self, "a", at_least=0, at_most=1, advice="Common values are 0.1 … 0.5; 0 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ a · (max p)²."""
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.a * p_NV.amax(dim=-1, keepdim=True).square()) & alive(logp_NV)
