"""The token that a roll of the dice finds, in double precision: who decides where rounding would.

    w_i = e^(s_i − max s),  the difference in single precision, e^x and all sums in double
    y = min { i : Σ_{j≤i, j kept} w_j > u · Σ_{j kept} w_j }

The quick ways (torch and compiled) compute in single precision and know by how much they may be off. Where
that leaves open which token it is, they ask here, so that either finds the same token, on every processor.
One row at a time: a few hundred microseconds, for few rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.decode.shortlist.mass_edge import Edge, intervals, mass_edge
from unspool.decode.transforms.nucleus import TopP, Typical
from unspool.decode.transforms.temperature import COLDEST, HOTTEST, Temperature
from unspool.decode.transforms.thresholds import Epsilon, Eta, MinP, TopA, TopK, TopNSigma
from unspool.interfaces import Transform

Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class Row:
    """The tokens that are left of one row, in the order of the vocabulary."""

    score: NDArray[np.float32]
    token: NDArray[np.int64]
    base: np.float32
    """The score of a token that weighs 1: the best, before a rule cut it."""

    @classmethod
    def of(cls, score: NDArray[np.float32], token: NDArray[np.int64]) -> Row:
        """All tokens that were not cut before."""
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
        """s − base, rounded to single precision, as both quick ways round it."""
        return (self.score - self.base).astype(np.float64)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """e^(s − base)."""
        found: NDArray[np.float64] = np.exp(self.below)
        return found

    @cached_property
    def total(self) -> float:
        """Z."""
        return float(self.weight.sum())

    @cached_property
    def scale(self) -> float:
        """base + log Z: log p = s − scale."""
        return float(self.base) + math.log(self.total)

    @cached_property
    def mean(self) -> float:
        """Σ p·s = scale − H."""
        return float(self.base) + float((self.weight * self.below).sum()) / self.total

    def where(self, kept: Kept) -> Row:
        """Only the tokens named."""
        return Row(self.score[kept], self.token[kept], self.base)

    def reaching(self, floor: float) -> Row:
        """Only the tokens at the floor or above, and the best."""
        return self.where(self.score >= np.float64(min(floor, self.peak)))  # in double precision


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def temperature(rule: Temperature, row: Row) -> Row:
    """In single precision, as the rule itself divides."""
    if rule.t == 1:
        return row
    divisor = np.float32(min(max(rule.t, COLDEST), HOTTEST))
    with np.errstate(over="ignore"):
        return Row.of((row.score - np.float32(row.peak)) / divisor, row.token)


def top_k(rule: TopK, row: Row) -> Row:
    """The k best, and what ties with the last of them."""
    if rule.k >= len(row.score):
        return row
    return row.where(row.score >= np.partition(row.score, -rule.k)[-rule.k])


def min_p(rule: MinP, row: Row) -> Row:
    """s ≥ max s + log m."""
    return row.reaching(row.peak + _log(rule.m))


def top_n_sigma(rule: TopNSigma, row: Row) -> Row:
    """s ≥ max s − n·σ."""
    return row.reaching(row.peak - rule.n * float(row.score.std(dtype=np.float64)))


def epsilon(rule: Epsilon, row: Row) -> Row:
    """p ≥ ε."""
    return row.reaching(row.scale + _log(rule.epsilon))


def eta(rule: Eta, row: Row) -> Row:
    """p ≥ min(η, √η · e^(−H))."""
    return row.reaching(min(row.scale + _log(rule.eta), row.mean + _log(rule.eta) / 2))


def top_a(rule: TopA, row: Row) -> Row:
    """p ≥ a · (max p)²."""
    return row.reaching(2 * row.peak - row.scale + _log(rule.a))


def top_p(rule: TopP, row: Row) -> Row:
    """The smallest set of mass p; of tied tokens the lower ids."""
    if rule.p == 1:
        return row
    edge = _edge(row, row.score, row.peak, _negligible(row, rule.p), rule.p)
    kept = row.score >= edge.key
    kept[np.flatnonzero(row.score == edge.key)[edge.needed(rule.p * row.total) :]] = False
    return row.where(kept)


def typical(rule: Typical, row: Row) -> Row:
    """The mass τ of nearly expected surprise, with all that tie at its edge."""
    if rule.tau == 1:
        return row
    key = -np.abs(row.score.astype(np.float64) - row.mean)
    floor = -max(abs(_negligible(row, rule.tau) - row.mean), abs(row.peak - row.mean))
    return row.where(key >= _edge(row, key, 0.0, floor, rule.tau).key)


def _negligible(row: Row, mass: float) -> float:
    """A score below which all tokens together weigh less than 1 − mass, by half for what is rounded."""
    return row.scale + math.log((1 - mass) / (2 * len(row.score)))


def _edge(row: Row, key: NDArray[Any], top: float, floor: float, mass: float) -> Edge:
    return mass_edge(key, row.weight, intervals(key, top, floor), mass * row.total)


RULES: dict[type, Callable[[Any, Row], Row]] = {
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


def left(scores_V: NDArray[np.float32], rules: Sequence[Transform]) -> Row:
    """What the rules leave of a row."""
    row = Row.of(scores_V, np.arange(len(scores_V)))
    for rule in rules:
        row = RULES[type(rule)](rule, row)
    return row


def decide(scores_V: NDArray[np.float32], rules: Sequence[Transform], u: float) -> tuple[int, float]:
    """The token at the share u of the mass that the rules leave, and its log-probability."""
    row = left(scores_V, rules)
    upto = row.weight.cumsum()
    # Strictly below the total, whatever was rounded: so the token found has mass of its own.
    target = min(u * upto[-1], math.nextafter(upto[-1], 0.0))
    place = int(np.searchsorted(upto, target, side="right"))
    return int(row.token[place]), float(row.below[place]) - math.log(row.total)
