"""Fit the κ rule on exact verdicts, and measure it on others.

    g(c) = the threshold on κ·p̂ᵢ with the fewest disagreements at that c = τ/(1 − τ)

A τ at which everything was accepted, or nothing, gives no threshold: g is taken from the others there.
The rule is in kappa_rule.py; the exact test is Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import Array, float64
from unspool.basis.kappa_rule import KappaRule
from unspool.basis.theory import slope_from_tau

if TYPE_CHECKING:
    from unspool.basis.exact import BasisTest


@dataclass(frozen=True)
class Calibration:
    """A fitted rule and how often it agrees with the exact test."""

    rule: KappaRule
    fitted: float
    """Agreement on the verdicts that it was fitted on."""
    held_out: float
    """Agreement on the others: the number to believe."""
    held_out_by_tau: dict[float, float]
    counts: tuple[int, int]
    """How many verdicts: fitted on, held out."""


def calibrate_kappa(
    test: BasisTest, p: ArrayLike, taus: Sequence[float], *, tokens: int = 8, fit: float = 0.5, seed: int = 0
) -> Calibration:
    """Fit g on the first share `fit` of the distributions p (N, V), and measure it on the others.

    Per distribution and τ, `tokens` tokens below τ are drawn from p̂ itself: those that a sampler would ask
    about.
    """
    p_NV = float64(p)
    if p_NV.ndim != 2 or len(p_NV) < 2:
        raise ValueError(f"p has shape {p_NV.shape}; calibration needs at least two distributions, (N, V).")
    if not 0 < fit < 1:
        raise ValueError(f"fit is {fit}; it is the share of the distributions to fit on, between 0 and 1.")
    dice = np.random.default_rng(seed)
    cut = min(max(round(fit * len(p_NV)), 1), len(p_NV) - 1)
    seen: dict[bool, dict[float, list[tuple[float, bool]]]] = {
        side: {t: [] for t in taus} for side in (True, False)
    }
    for n, p_V in enumerate(p_NV):
        step = test.step(p_V)
        for tau in taus:
            for i in _ask_about(step.distribution.p, tau, tokens, dice):
                pair = (step.kappa * step.distribution.p[i], bool(step.accepts(i, tau=tau)))
                seen[n < cut][tau].append(pair)
    rule = fitted(test.m, seen[True])
    right = {
        side: {t: [(k >= rule.threshold(t)) == v for k, v in pairs] for t, pairs in by_tau.items() if pairs}
        for side, by_tau in seen.items()
    }
    everything = {side: [x for each in by_tau.values() for x in each] for side, by_tau in right.items()}
    return Calibration(
        rule,
        fitted=float(np.mean(everything[True])),
        held_out=float(np.mean(everything[False])) if everything[False] else float("nan"),
        held_out_by_tau={t: float(np.mean(each)) for t, each in right[False].items()},
        counts=(len(everything[True]), len(everything[False])),
    )


def fitted(m: int, seen: dict[float, list[tuple[float, bool]]]) -> KappaRule:
    """A knot for each τ with verdicts of both kinds: one kind alone only bounds g from one side."""
    some = {tau: seen[tau] for tau in sorted(seen) if seen[tau]}
    both = {tau: pairs for tau, pairs in some.items() if len({verdict for _, verdict in pairs}) == 2}
    knots = {slope_from_tau(tau): best_threshold(pairs) for tau, pairs in (both or some).items()}
    if not knots:
        raise ValueError("No token with probability below any of the taus: nothing to fit on.")
    return KappaRule(m, tuple(knots), tuple(knots.values()))


def best_threshold(pairs: Sequence[tuple[float, bool]]) -> float:
    """The g that parts accepted from rejected with the fewest mistakes, between its two neighbours."""
    values = np.array([value for value, _ in pairs])
    accepted = np.array([verdict for _, verdict in pairs])[np.argsort(values)]
    values = np.sort(values)
    # A cut before rank r accepts everything from r on.
    wrong = np.append(0, np.cumsum(accepted)) + np.append(np.cumsum(~accepted[::-1])[::-1], 0)
    r = int(np.argmin(wrong))
    low, high = values[max(r - 1, 0)], values[min(r, len(values) - 1)]
    return float(np.sqrt(low * high))


def _ask_about(p_V: Array, tau: float, tokens: int, dice: np.random.Generator) -> list[int]:
    below_V = np.where(p_V < tau, p_V, 0.0)
    mass = below_V.sum()
    if not mass > 0:
        return []
    return [int(i) for i in np.unique(dice.choice(len(p_V), size=tokens, p=below_V / mass))]
