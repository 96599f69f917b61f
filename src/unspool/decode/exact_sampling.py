"""Exact sampling: truncate one row and draw its token in float64, the reference for compiled sampling.

    w_i = e^(s_i − max s),   the difference in float32, e^x and all sums in float64
    y = min { i : Σ_{j≤i, j kept} w_j > u · Σ_{j kept} w_j }

The compiled kernels (`engine.sampling`) compute in float32 and know a bound on their rounding error. If
rounding could change a row's token, the row is drawn here, so that the token is the same on every processor.
Each function here is the definition of one transform; `transforms` documents the papers and the ties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.decode.transforms.nucleus import TopP, Typical
from unspool.decode.transforms.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE, Temperature
from unspool.decode.transforms.thresholds import Epsilon, Eta, MinP, TopA, TopK, TopNSigma
from unspool.interfaces import Transform


@dataclass(frozen=True)
class ExactRow:
    """The remaining tokens of one row, in the order of the vocabulary."""

    score: NDArray[np.float32]
    token: NDArray[np.int64]
    base: np.float32
    """The score of a token of weight 1: the best score before the truncations since the last temperature."""

    @classmethod
    def of(cls, score: NDArray[np.float32], token: NDArray[np.int64]) -> ExactRow:
        """All tokens with a finite score."""
        alive = score > -np.inf
        if not alive.all():
            score, token = score[alive], token[alive]
        return cls(score, token, score.max())

    @cached_property
    def peak(self) -> float:
        """The best score."""
        return float(self.score.max())

    @cached_property
    def below(self) -> NDArray[np.float64]:
        """s − base, rounded to float32 as the kernels round it."""
        return (self.score - self.base).astype(np.float64)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """e^(s − base)."""
        weight: NDArray[np.float64] = np.exp(self.below)
        return weight

    @cached_property
    def total(self) -> float:
        """Z, the sum of the weights."""
        return float(self.weight.sum())

    @cached_property
    def log_normaliser(self) -> float:
        """base + log Z: log p = s − log_normaliser."""
        return float(self.base) + math.log(self.total)

    @cached_property
    def mean(self) -> float:
        """Σ p·s = log_normaliser − H."""
        return float(self.base) + float((self.weight * self.below).sum()) / self.total

    def select(self, kept: NDArray[Any]) -> ExactRow:
        """Only these tokens, given as a mask."""
        return ExactRow(self.score[kept], self.token[kept], self.base)

    def reaching(self, threshold: float) -> ExactRow:
        """Only the tokens whose score is at least the threshold, and the best."""
        return self.select(self.score >= np.float64(min(threshold, self.peak)))  # compared in float64


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def temperature(rule: Temperature, row: ExactRow) -> ExactRow:
    """(s − max s) / t, in float32 as the transform divides."""
    if rule.t == 1:
        return row
    divisor = np.float32(min(max(rule.t, MIN_TEMPERATURE), MAX_TEMPERATURE))
    with np.errstate(over="ignore"):
        return ExactRow.of((row.score - np.float32(row.peak)) / divisor, row.token)


def top_k(rule: TopK, row: ExactRow) -> ExactRow:
    """The k best and all that tie with the last of them."""
    if rule.k >= len(row.score):
        return row
    return row.select(row.score >= np.partition(row.score, -rule.k)[-rule.k])


def min_p(rule: MinP, row: ExactRow) -> ExactRow:
    """s ≥ max s + log m."""
    return row.reaching(row.peak + _log(rule.m))


def top_n_sigma(rule: TopNSigma, row: ExactRow) -> ExactRow:
    """s ≥ max s − n·σ."""
    return row.reaching(row.peak - rule.n * float(row.score.std(dtype=np.float64)))


def epsilon(rule: Epsilon, row: ExactRow) -> ExactRow:
    """p ≥ ε."""
    return row.reaching(row.log_normaliser + _log(rule.epsilon))


def eta(rule: Eta, row: ExactRow) -> ExactRow:
    """p ≥ min(η, √η · e^(−H))."""
    return row.reaching(min(row.log_normaliser + _log(rule.eta), row.mean + _log(rule.eta) / 2))


def top_a(rule: TopA, row: ExactRow) -> ExactRow:
    """p ≥ a · (max p)²."""
    return row.reaching(2 * row.peak - row.log_normaliser + _log(rule.a))


def top_p(rule: TopP, row: ExactRow) -> ExactRow:
    """The smallest set of mass p; of tied tokens the lower ids."""
    if rule.p == 1:
        return row
    kept = np.zeros(len(row.score), np.bool_)
    kept[_smallest_set(row, row.score, rule.p)] = True
    return row.select(kept)


def typical(rule: Typical, row: ExactRow) -> ExactRow:
    """The tokens with |s − Σ p·s| smallest, of mass τ, and all that tie with the last of them."""
    if rule.tau == 1:
        return row
    key = -np.abs(row.score.astype(np.float64) - row.mean)
    return row.select(key >= key[_smallest_set(row, key, rule.tau)[-1]])


def _smallest_set(row: ExactRow, key: NDArray[Any], mass: float) -> NDArray[np.int64]:
    """Places of the tokens with the highest keys whose weights reach this share of the total."""
    order = np.argsort(-key, kind="stable")
    cumulative = row.weight[order].cumsum()
    return order[: int(np.searchsorted(cumulative, min(mass * row.total, cumulative[-1]))) + 1]


EXACT: dict[type, Callable[[Any, ExactRow], ExactRow]] = {
    Temperature: temperature,
    TopK: top_k,
    MinP: min_p,
    TopNSigma: top_n_sigma,
    Epsilon: epsilon,
    Eta: eta,
    TopA: top_a,
    TopP: top_p,
    Typical: typical,
}


def truncate_exactly(scores_V: NDArray[np.float32], rules: Sequence[Transform]) -> ExactRow:
    """The tokens that the rules keep."""
    row = ExactRow.of(scores_V, np.arange(len(scores_V)))
    for rule in rules:
        row = EXACT[type(rule)](rule, row)
    return row


def draw_exactly(scores_V: NDArray[np.float32], rules: Sequence[Transform], u: float) -> tuple[int, float]:
    """The token at the share u of the mass that the rules keep, and its log-probability."""
    row = truncate_exactly(scores_V, rules)
    cumulative = row.weight.cumsum()
    # Strictly below the total despite rounding, so that the token has a positive weight.
    target = min(u * cumulative[-1], math.nextafter(cumulative[-1], 0.0))
    place = int(np.searchsorted(cumulative, target, side="right"))
    return int(row.token[place]), float(row.below[place]) - math.log(row.total)
