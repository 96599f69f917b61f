"""Divide the sum of the scores by a power of the length.

    s(y) = Σ_t log p(y_t | y_{<t}) / |y|^α

|y| counts the generated tokens, the end-of-text token included and the prompt excluded. α = 0 is the plain
sum, α = 1 the mean; α > 0 favours long hypotheses, α < 0 short ones. It is Hugging Face's `length_penalty`.
Murray & Chiang 2018 (α = 1, their length normalisation).
papers.bib: murray2018correcting
"""

from __future__ import annotations

from dataclasses import dataclass

from unspool.decode.arguments import number

STEEPEST = 10.0
"""|α| beyond this overflows on long texts and ranks nothing but length."""


@dataclass(frozen=True)
class Length:
    """Rank by Σ / |y|^α."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        advice = "0 is the plain sum, 1 the mean."
        number(self, "alpha", at_least=-STEEPEST, at_most=STEEPEST, advice=advice)

    def __call__(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` ≥ 1 tokens whose scores sum to `total`."""
        return float(total / length**self.alpha)
