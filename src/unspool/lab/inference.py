"""Intervals of effects over seeds, and over units (prompts, texts, pairs) within seeds.

One number for each seed: the typical values of Hartigan 1969 (papers.bib: hartigan1969using), which invert
the sign-flip permutation test. The means of all 2ⁿ − 1 subsets of the n seeds divide the line into 2ⁿ parts,
and each contains the true mean with the same probability if deviations are symmetric. No other assumption
is made. With fewer than six seeds there is no interval of 95 %.

Several units for each seed: a hierarchical bootstrap. Seeds are drawn with replacement, and then units within
each drawn seed; if all seeds have the same units, both are drawn independently (Owen 2007; papers.bib:
owen2007pigeonhole). Percentiles are too narrow for few seeds, so their distance from the mean is multiplied:

    factor = t₀.₉₇₅(k − 1) / z₀.₉₇₅ · √(k / (k − 1)),   k = min(seeds, units if they are the same in all)

If all numbers are equal, the interval has no width: no method sees what was never observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.plots.seeds import half_widths

LEVEL = 0.95
DRAWS = 4000
MOST_SUBSETS = 1 << 16

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval; the interval is infinite if there are too few seeds."""

    mean: float
    low: float
    high: float
    seeds: int
    units: int
    """Numbers of all seeds together."""

    def __str__(self) -> str:
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{self.mean:.3g} (too few seeds for an interval)"
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"


def estimate(effects: Sequence[float | Sequence[float]], *, crossed: bool = False) -> Effect:
    """Return the mean over seeds of the mean over units, with its interval."""
    rows = [np.atleast_1d(np.asarray(it, dtype=float)) for it in effects]
    mean = float(np.mean([row.mean() for row in rows]))
    if all(len(row) == 1 for row in rows):
        low, high = typical_values(np.concatenate(rows))
    elif crossed:
        low, high = _widened(mean, _crossed_means(np.stack(rows)), min(len(rows), len(rows[0])))
    else:
        low, high = _widened(mean, _nested_means(rows), len(rows))
    return Effect(mean, low, high, len(rows), sum(len(row) for row in rows))


def typical_values(values_N: Floats) -> tuple[float, float]:
    """Return the interval of a symmetric centre from the means of subsets."""
    seeds = len(values_N)
    if 1 << seeds <= MOST_SUBSETS:
        subsets_BN = (np.arange(1, 1 << seeds)[:, None] >> np.arange(seeds)) & 1
    else:
        subsets_BN = np.random.default_rng(0).integers(0, 2, size=(MOST_SUBSETS - 1, seeds))
        subsets_BN = subsets_BN[subsets_BN.any(1)]
    means_B = np.sort(subsets_BN @ values_N / subsets_BN.sum(1))
    outside = math.floor((1 - LEVEL) / 2 * (len(means_B) + 1))
    if outside == 0:
        return -math.inf, math.inf
    return float(means_B[outside - 1]), float(means_B[-outside])


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a mean by Student's t; infinite for one value."""
    if len(values) < 2:
        return -math.inf, math.inf
    (half,), mean = half_widths(np.array([values])), float(np.mean(values))
    return mean - float(half), mean + float(half)


def power(excess: float, deviation: float, seeds: int) -> float:
    """Return the probability that the interval lies above `matters`, by the noncentral t distribution.

    The true effect exceeds `matters` by `excess`; seeds have this standard deviation.
    """
    from scipy.stats import nct, t

    limit = t.ppf((1 + LEVEL) / 2, seeds - 1)
    return float(nct.sf(limit, seeds - 1, excess / deviation * math.sqrt(seeds)))


def _nested_means(rows: Sequence[Floats]) -> Floats:
    rng, means_B = np.random.default_rng(0), np.zeros(DRAWS)
    for _ in rows:
        drawn_B = rng.integers(len(rows), size=DRAWS)
        for seed, row in enumerate(rows):
            at = np.flatnonzero(drawn_B == seed)
            means_B[at] += row[rng.integers(len(row), size=(len(at), len(row)))].mean(1) / len(rows)
    return means_B


def _crossed_means(values_NU: Floats) -> Floats:
    rng, (seeds, units) = np.random.default_rng(0), values_NU.shape
    weights_BN = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    weights_BU = rng.multinomial(units, np.full(units, 1 / units), size=DRAWS) / units
    means_B: Floats = np.einsum("bn,nu,bu->b", weights_BN, values_NU, weights_BU)
    return means_B


def _widened(mean: float, means_B: Floats, groups: int) -> tuple[float, float]:
    if groups < 2:
        return -math.inf, math.inf
    from scipy.stats import norm, t

    upper = (1 + LEVEL) / 2
    factor = t.ppf(upper, groups - 1) / norm.ppf(upper) * math.sqrt(groups / (groups - 1))
    low, high = np.quantile(means_B, [1 - upper, upper])
    return float(mean - factor * (mean - low)), float(mean + factor * (high - mean))
