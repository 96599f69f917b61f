"""When a beam whose pool of ended hypotheses is full may stop.

Let w be the worst score in the pool, σ the largest sum of a live hypothesis, ℓ its length, L the limit, and
s(σ, ℓ) what the length penalty makes of them.

    FirstFull   at once
    Heuristic   when s(σ, ℓ) ≤ w
    Proved      when max( s(σ, ℓ), s(σ, L) ) ≤ w

FirstFull guarantees nothing about what it did not wait for; it is the quickest, and with a patience factor
it is the rule of Kasai et al. 2022 (papers.bib: kasai2022beam). Heuristic assumes that no live hypothesis
will score better at a later length than it would by ending now: a proof under `Sum` and under penalties that
favour short hypotheses, a guess under those that favour long ones. Proved guarantees the pool of a beam of
that width that ran to the limit: scores are at most 0, so that a live sum only falls, and a length penalty,
monotone in the length, is best at one of the two ends. Where a model gives scores above 0 (contrastive
decoding), nothing can be proved and it runs to the limit.

Hugging Face calls them early_stopping=True, False and "never".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LengthPenalty(Protocol):
    """Makes one score of a sum and a length: rising with the sum, monotone in the length."""

    def __call__(self, total: float, length: int) -> float:
        """What `length` ≥ 1 tokens whose scores sum to `total` are worth."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a beam stands whose pool is full."""

    worst: float
    """The lowest score in the pool: what a newcomer has to beat."""
    total: float
    """The largest sum of a live hypothesis."""
    length: int
    """How many tokens the live hypotheses have."""
    limit: int
    """How many they may have."""
    penalty: LengthPenalty
    rising: bool
    """Whether a token's score may be above 0, so that a sum may rise."""


class Stop(Protocol):
    """Asked after every step of a beam whose pool is full and which still has live hypotheses."""

    def __call__(self, standing: Standing) -> bool:
        """Whether to stop."""
        ...


@dataclass(frozen=True)
class FirstFull:
    """Stop as soon as the pool is full."""

    def __call__(self, standing: Standing) -> bool:  # noqa: ARG002
        """Always."""
        return True


@dataclass(frozen=True)
class Heuristic:
    """Stop when the best live hypothesis, ended where it is, would not enter the pool."""

    def __call__(self, standing: Standing) -> bool:
        """Whether the score at the present length is no better than the worst kept."""
        return standing.penalty(standing.total, standing.length) <= standing.worst


@dataclass(frozen=True)
class Proved:
    """Stop when no continuation of any live hypothesis can enter the pool."""

    def __call__(self, standing: Standing) -> bool:
        """Whether the best possible score is no better than the worst kept."""
        at = standing.penalty
        best = max(at(standing.total, standing.length), at(standing.total, standing.limit))
        return not standing.rising and best <= standing.worst
