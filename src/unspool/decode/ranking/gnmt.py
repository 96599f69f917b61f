"""The length penalty of Google's translation system: a power of the length, flat for short hypotheses.

    s(y) = Σ_t log p(y_t | y_{<t}) / lp(y),    lp(y) = ((5 + |y|) / 6)^α

|y| counts the generated tokens, the end-of-text token included. α = 0 is the plain sum; the paper found
0.6 ≤ α ≤ 0.7 best.
Wu et al. 2016, §7, equation 14.
papers.bib: wu2016google
"""

from __future__ import annotations

from dataclasses import dataclass

from unspool.decode.arguments import number
from unspool.decode.ranking.length import STEEPEST


@dataclass(frozen=True)
class GNMT:
    """Rank by Σ / ((5 + |y|) / 6)^α."""

    alpha: float = 0.6

    def __post_init__(self) -> None:
        advice = "0 is the plain sum, 0.6 the paper's choice."
        number(self, "alpha", at_least=-STEEPEST, at_most=STEEPEST, advice=advice)

    def __call__(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens whose scores sum to `total`."""
        return float(total / ((5 + length) / 6) ** self.alpha)
