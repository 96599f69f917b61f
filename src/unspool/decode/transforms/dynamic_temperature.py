"""Dynamic temperature: flatten a distribution the more, the flatter it is.

    T = low + (high − low) · (H / log n)^γ,     p′(x) ∝ p(x)^(1/T)

kalomaze 2024 (KoboldCpp, pull request 600; the same in llama.cpp, 4972).
papers.bib: kalomaze2024dynamic

H is the entropy of the n tokens that no rule has cut, and log n the most that it can be: a sure row is
divided by `low`, a uniform one by `high`. γ is `exponent`. No token is cut, and a row of one token stays as
it is. llama.cpp asks for a middle and a range: low is their difference, high their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.path import Path
from unspool.decode.transforms.scores import alive, peaks
from unspool.decode.transforms.temperature import COLDEST, HOTTEST, divided
from unspool.protocols import Step


@dataclass(frozen=True)
class DynamicTemperature:
    """Divide every score by a temperature between low and high that follows the entropy."""

    low: float = 0.5
    high: float = 1.5
    exponent: float = 1.0

    def __post_init__(self) -> None:
        number(self, "low", above=0, advice="It is the temperature of a sure row; common is 0.5.")
        number(self, "high", at_least=self.low, advice="It is that of a uniform row; common is 1.5.")
        number(self, "exponent", above=0, advice="Common is 1; above 1, medium rows stay colder.")

    def temperatures(self, scores_NV: Tensor) -> Tensor:
        """(N, 1): T of every row."""
        logp_NV = scores_NV.double().log_softmax(dim=-1)
        entropy_N1 = -(logp_NV.exp() * logp_NV).nan_to_num(nan=0.0).sum(dim=-1, keepdim=True)
        most_N1 = alive(scores_NV).sum(dim=-1, keepdim=True).double().log()
        share_N1 = (entropy_N1 / most_N1).nan_to_num(nan=0.0).clamp(0, 1)
        return self.low + (self.high - self.low) * share_N1**self.exponent

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peak_N1 = peaks(scores_NV)
        t_N1 = self.temperatures(scores_NV).clamp(COLDEST, HOTTEST).to(scores_NV.dtype)
        return divided(scores_NV, peak_N1, t_N1, step)
