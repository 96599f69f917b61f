"""Ranking in beam search: length penalties, coverage penalty and stop rules.

A stop rule decides when a beam with a full pool of finished hypotheses stops. Let w be the worst score in the
pool, σ the largest sum of a live hypothesis, ℓ its length, L the limit, and s(σ, ℓ) the length-penalised
score.

    FirstFull   at once
    Heuristic   if s(σ, ℓ) ≤ w
    Proved      if max( s(σ, ℓ), s(σ, L) ) ≤ w

Hugging Face calls them early_stopping=True, False and "never".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.arguments import Checked, number
from unspool.interfaces import Step


@dataclass(frozen=True)
class Sum:
    """No length penalty: the score of a hypothesis is the sum of its token scores.

        s(y) = Σ_t log p(y_t | y_{<t})

    The most probable text ranks first. Every token lowers the sum, so that short hypotheses are favoured,
    more so in wide beams. Stahlberg & Byrne 2019 (for many sources the most probable translation is empty).
    papers.bib: stahlberg2019nmt
    """

    def __call__(self, total: float, length: int) -> float:  # noqa: ARG002
        return total


MAX_ALPHA = 10.0
"""A larger |α| overflows on long texts, and ranks by length only."""


@dataclass(frozen=True)
class Length(Checked):
    """Length penalty: divide the sum of the scores by a power of the length.

        s(y) = Σ_t log p(y_t | y_{<t}) / |y|^α

    |y| is the number of generated tokens, with the end token and without the prompt. α = 0 is the plain
    sum, α = 1 the mean; α > 0 favours long hypotheses, α < 0 short ones. It is Hugging Face's
    `length_penalty`.
    Murray & Chiang 2018 (α = 1, their length normalisation). papers.bib: murray2018correcting
    """

    alpha: float = number(
        1.0, at_least=-MAX_ALPHA, at_most=MAX_ALPHA, advice="0 is the plain sum, 1 the mean."
    )

    def __call__(self, total: float, length: int) -> float:
        return float(total / length**self.alpha)


@dataclass(frozen=True)
class GNMT(Checked):
    """GNMT length penalty: a power of the length, flat for short hypotheses.

        s(y) = Σ_t log p(y_t | y_{<t}) / lp(y),    lp(y) = ((5 + |y|) / 6)^α

    |y| is the number of generated tokens, with the end token. α = 0 is the plain sum; the paper found
    0.6 ≤ α ≤ 0.7 best.
    Wu et al. 2016, §7, equation 14 (papers.bib: wu2016google).
    """

    alpha: float = number(
        0.6, at_least=-MAX_ALPHA, at_most=MAX_ALPHA, advice="0 is the plain sum, 0.6 the paper's choice."
    )

    def __call__(self, total: float, length: int) -> float:
        return float(total / ((5 + length) / 6) ** self.alpha)


@dataclass(frozen=True)
class Coverage(Checked):
    """Coverage penalty: lower the score for source tokens without attention.

        s(y, x) = log p(y | x) / lp(y) + cp(x, y),    cp(x, y) = β Σ_i log min(Σ_t a_ti, 1)

    a_ti is the attention on source token i at target token t. The penalty is 0 if every source token has
    received a total attention of 1, and negative otherwise. It is added to the length-penalised score of a
    finished hypothesis.
    Wu et al. 2016, §7, equation 14 (p_ij there). papers.bib: wu2016google

    It needs a model whose Step.attention is (N, S), the attention of every row on its source of S tokens.
    Columns that are exactly 0 at the first step are padding and do not count. Differs from the paper: a
    source token whose attention stays exactly 0 costs β·log(smallest normal number) instead of −∞, so that
    hypotheses that all miss one word can be compared.
    """

    beta: float = number(0.2, at_least=0, advice="The paper uses 0.2; to ignore coverage, leave it out.")

    def __call__(self, attended: Attended) -> Tensor:
        """(N): the penalty of every row if it ends with its next token."""
        share_NS = attended.sum_NS.clamp(min=torch.finfo(attended.sum_NS.dtype).tiny, max=1.0)
        return self.beta * (share_NS.log() * attended.real_NS).sum(dim=-1)


@dataclass(frozen=True)
class Attended:
    """The total attention of every row on every source token."""

    sum_NS: Tensor
    real_NS: Tensor
    """False at padding."""

    @classmethod
    def begin(cls, step: Step) -> Attended:
        first_NS = _attention(step).double()
        return cls(first_NS, first_NS != 0)

    def select(self, rows_M: Tensor) -> Attended:
        return Attended(self.sum_NS.index_select(0, rows_M), self.real_NS.index_select(0, rows_M))

    def plus(self, step: Step) -> Attended:
        new_NS = _attention(step)
        if new_NS.shape != self.sum_NS.shape:
            raise ValueError(
                f"Coverage: the attention changed its shape from {tuple(self.sum_NS.shape)} to "
                f"{tuple(new_NS.shape)}, but must be (rows, source tokens): leave coverage out for this model"
            )
        return Attended(self.sum_NS + new_NS, self.real_NS)


def _attention(step: Step) -> Tensor:
    if step.attention is None or step.attention.dim() != 2:
        actual = "none" if step.attention is None else f"one of shape {tuple(step.attention.shape)}"
        raise ValueError(
            f"Coverage needs Step.attention of shape (rows, source tokens), but it is {actual}: "
            "use an encoder–decoder that returns it, or leave coverage out"
        )
    return step.attention


LengthPenalty = Callable[[float, int], float]
"""The score of hypotheses from sum and length ≥ 1: increasing in the sum, monotone in the length."""


@dataclass(frozen=True, slots=True)
class BeamStatus:
    """The status of a beam with a full pool."""

    worst: float
    """The lowest score in the pool."""
    total: float
    """The largest sum of a live hypothesis."""
    length: int
    """Number of tokens of the live hypotheses."""
    limit: int
    """Maximum number of tokens."""
    penalty: LengthPenalty
    rising: bool
    """True if token scores may be above 0, so that a sum may rise."""


Stop = Callable[[BeamStatus], bool]
"""A stop rule, called after every step of a beam with a full pool and live hypotheses; True stops it."""


@dataclass(frozen=True)
class FirstFull:
    """Stop as soon as the pool is full: the fastest rule, without a guarantee.

    With a patience factor it is the rule of Kasai et al. 2022 (papers.bib: kasai2022beam).
    """

    def __call__(self, status: BeamStatus) -> bool:  # noqa: ARG002
        return True


@dataclass(frozen=True)
class Heuristic:
    """Stop if the best live hypothesis would not enter the pool if it ended now.

    It assumes that a live hypothesis does not score better at a later length. That is exact for `Sum` and for
    penalties that favour short hypotheses, and a heuristic for those that favour long ones.
    """

    def __call__(self, status: BeamStatus) -> bool:
        return status.penalty(status.total, status.length) <= status.worst


@dataclass(frozen=True)
class Proved:
    """Stop if no continuation of a live hypothesis can enter the pool.

    The pool is the same as that of a beam that runs to the limit: scores are at most 0, so that sums only
    fall, and a monotone length penalty is best at one of the two ends. If a model has scores above 0
    (contrastive decoding), the beam runs to the limit.
    """

    def __call__(self, status: BeamStatus) -> bool:
        at = status.penalty
        best = max(at(status.total, status.length), at(status.total, status.limit))
        return not status.rising and best <= status.worst


RANKING: dict[str, type] = {
    "Coverage": Coverage,
    "FirstFull": FirstFull,
    "GNMT": GNMT,
    "Heuristic": Heuristic,
    "Length": Length,
    "Proved": Proved,
    "Sum": Sum,
}
