"""Ranking: what a hypothesis is worth when it has ended, and when a ranking search may stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unspool.decode.arguments import check_number
from unspool.interfaces import Step


@dataclass(frozen=True)
class Sum:
    """Rank by the plain sum.

    No length penalty: a hypothesis is worth the sum of its scores.

        s(y) = Σ_t log p(y_t | y_{<t})

    The canonical score: the most probable text ranks first. Every token costs something, so that short
    hypotheses are favoured, the more the wider the beam.
    Stahlberg & Byrne 2019 (for many sources the most probable translation is empty).
    papers.bib: stahlberg2019nmt
    """

    def __call__(self, total: float, length: int) -> float:  # noqa: ARG002
        """The sum itself, however long the hypothesis."""
        return total


STEEPEST = 10.0
"""|α| beyond this overflows on long texts and ranks nothing but length."""


@dataclass(frozen=True)
class Length:
    """Rank by Σ / |y|^α.

    Divide the sum of the scores by a power of the length.

        s(y) = Σ_t log p(y_t | y_{<t}) / |y|^α

    |y| counts the generated tokens, with the end-of-text token and without the prompt. α = 0 is the plain
    sum, α = 1 the mean; α > 0 favours long hypotheses, α < 0 short ones. It is Hugging Face's
    `length_penalty`.
    Murray & Chiang 2018 (α = 1, their length normalisation).
    papers.bib: murray2018correcting
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        advice = "0 is the plain sum, 1 the mean."
        check_number(self, "alpha", at_least=-STEEPEST, at_most=STEEPEST, advice=advice)

    def __call__(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` ≥ 1 tokens whose scores sum to `total`."""
        return float(total / length**self.alpha)


@dataclass(frozen=True)
class GNMT:
    """Rank by Σ / ((5 + |y|) / 6)^α.

    The length penalty of Google's translation system: a power of the length, flat for short hypotheses.

        s(y) = Σ_t log p(y_t | y_{<t}) / lp(y),    lp(y) = ((5 + |y|) / 6)^α

    |y| counts the generated tokens, the end-of-text token included. α = 0 is the plain sum; the paper found
    0.6 ≤ α ≤ 0.7 best.
    Wu et al. 2016, §7, equation 14.
    papers.bib: wu2016google
    """

    alpha: float = 0.6

    def __post_init__(self) -> None:
        advice = "0 is the plain sum, 0.6 the paper's choice."
        check_number(self, "alpha", at_least=-STEEPEST, at_most=STEEPEST, advice=advice)

    def __call__(self, total: float, length: int) -> float:
        """The score of a hypothesis of `length` tokens whose scores sum to `total`."""
        return float(total / ((5 + length) / 6) ** self.alpha)


# Coverage penalty: a hypothesis pays for every source token that it has not looked at.
#
#     s(y, x) = log p(y | x) / lp(y) + cp(x, y),    cp(x, y) = β Σ_i log min(Σ_t a_ti, 1)
#
# a_ti is the attention on source token i while target token t was predicted. The penalty is at most 0, and
# 0 where every source token has received a whole unit of attention. It is added to whatever length penalty
# ranks the hypothesis, when the hypothesis ends; while they grow, hypotheses are compared by their sums.
# Wu et al. 2016, §7, equation 14 (p_ij there).
# papers.bib: wu2016google
#
# Needs a model whose Step.attention is (N, S), the attention of every row over one source of S tokens.
# Columns that hold exactly 0 at the first step are the padding of a shorter source and are not counted.
# Differs from the paper: a source token whose attention stays exactly 0 costs β·log(smallest normal number)
# instead of −∞, so that hypotheses which all miss one word can still be told apart.


@dataclass(frozen=True)
class Coverage:
    """Add β Σ_i log min(Σ_t a_ti, 1) to the score of an ended hypothesis."""

    beta: float = 0.2

    def __post_init__(self) -> None:
        check_number(
            self,
            "beta",
            at_least=0,
            advice="The paper uses 0.2; to ignore coverage, leave it out.",
        )

    def __call__(self, attended: Attended) -> Tensor:
        """(N): the penalty of every row, were it to end with its next token."""
        share_NS = attended.sum_NS.clamp(min=torch.finfo(attended.sum_NS.dtype).tiny, max=1.0)
        return self.beta * (share_NS.log() * attended.real_NS).sum(dim=-1)


@dataclass(frozen=True)
class Attended:
    """How much attention every row has spent on every source token so far."""

    sum_NS: Tensor
    real_NS: Tensor
    """False in the columns that pad a shorter source."""

    @classmethod
    def begin(cls, step: Step) -> Attended:
        """What the first step looked at."""
        first_NS = _attention(step).double()
        return cls(first_NS, first_NS != 0)

    def select(self, rows_M: Tensor) -> Attended:
        """Rows reordered, repeated or dropped."""
        return Attended(self.sum_NS.index_select(0, rows_M), self.real_NS.index_select(0, rows_M))

    def plus(self, step: Step) -> Attended:
        """With what one more step looked at."""
        new_NS = _attention(step)
        if new_NS.shape != self.sum_NS.shape:
            raise ValueError(
                f"Coverage: the model's attention changed its shape from {tuple(self.sum_NS.shape)} to "
                f"{tuple(new_NS.shape)}, but must be (rows, source tokens) over one fixed source. "
                "Leave coverage out for a model that attends to what it has generated."
            )
        return Attended(self.sum_NS + new_NS, self.real_NS)


def _attention(step: Step) -> Tensor:
    if step.attention is None or step.attention.dim() != 2:
        found = "none" if step.attention is None else f"one of shape {tuple(step.attention.shape)}"
        raise ValueError(
            "Coverage needs a model that reports its attention over the source as (rows, source tokens), and "
            f"the Step.attention of this one is {found}. Use an encoder–decoder that reports it, or leave "
            "coverage out."
        )
    return step.attention


# When a beam whose pool of ended hypotheses is full may stop.
#
# Let w be the worst score in the pool, σ the largest sum of a live hypothesis, ℓ its length, L the limit, and
# s(σ, ℓ) what the length penalty makes of them.
#
#     FirstFull   at once
#     Heuristic   when s(σ, ℓ) ≤ w
#     Proved      when max( s(σ, ℓ), s(σ, L) ) ≤ w
#
# FirstFull guarantees nothing about what it did not wait for; it is the quickest, and with a patience factor
# it is the rule of Kasai et al. 2022 (papers.bib: kasai2022beam). Heuristic assumes that no live hypothesis
# will score better at a later length than it would by ending now: a proof under `Sum` and under penalties
# that favour short hypotheses, a guess under those that favour long ones. Proved guarantees the pool of a
# beam of that width that ran to the limit: scores are at most 0, so that a live sum only falls, and a length
# penalty, monotone in the length, is best at one of the two ends. Where a model gives scores above 0
# (contrastive decoding), nothing can be proved and it runs to the limit.
#
# Hugging Face calls them early_stopping=True, False and "never".


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


RANKING: dict[str, type] = {
    "Coverage": Coverage,
    "FirstFull": FirstFull,
    "GNMT": GNMT,
    "Heuristic": Heuristic,
    "Length": Length,
    "Proved": Proved,
    "Sum": Sum,
}
