"""Fit the κ rule on exact verdicts, and measure it on others.

    g(c) = the threshold on κ·p̂ᵢ·ℓᵢ with the fewest disagreements at that c = τ/(1 − τ)

A τ at which everything was accepted, or nothing, gives no threshold: g is taken from the others there.
The rule is in kappa_rule.py; the exact test is Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.basis.arrays import Array, Indices, float64
from unspool.basis.kappa_rule import KappaRule
from unspool.basis.row_lengths import RowLengths
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
    test: BasisTest,
    p: ArrayLike,
    taus: Sequence[float],
    *,
    tokens: int = 8,
    fit: float = 0.5,
    seed: int = 0,
    lengths: bool = True,
) -> Calibration:
    """Fit g on the first share `fit` of the distributions p (N, V), and measure it on the others.

    Per distribution and τ, `tokens` tokens below τ are drawn from p̂ itself: those that a sampler would ask
    about. With `lengths` the rule carries the row lengths ℓ, made of W and the distributions that it is
    fitted on; without, ℓ = 1, and it needs nothing of W. Lengths are the default for what docs/basis.md
    measures: much more agreement at rank 100 of SmolLM2, hardly a difference at ranks 20 and 576.
    """
    return exact_verdicts(test, p, taus, tokens=tokens, seed=seed).calibrate(fit=fit, lengths=lengths)


def exact_verdicts(
    test: BasisTest, p: ArrayLike, taus: Sequence[float], *, tokens: int = 8, seed: int = 0
) -> ExactVerdicts:
    """Have the exact test decide on tokens of the distributions p (N, V): either form of the rule fits."""
    p_NV = float64(p)
    if p_NV.ndim != 2 or len(p_NV) < 2:
        raise ValueError(f"p has shape {p_NV.shape}; calibration needs at least two distributions, (N, V).")
    dice = np.random.default_rng(seed)
    found: list[tuple[int, float, int, float, bool]] = []
    for n, p_V in enumerate(p_NV):
        step = test.step(p_V)
        for tau in taus:
            for i in _ask_about(step.distribution.p, tau, tokens, dice):
                scaled = float(step.kappa * step.distribution.p[i])
                found.append((n, tau, i, scaled, bool(step.accepts(i, tau=tau))))
    if not found:
        raise ValueError("No token with probability below any of the taus: nothing to fit on.")
    place, tau_of, token, scaled_of, accepted = map(np.array, zip(*found, strict=True))
    return ExactVerdicts(test, p_NV, place, tau_of, token, scaled_of, accepted)


@dataclass(frozen=True, eq=False)
class ExactVerdicts:
    """What the exact test said of Q tokens, beside what the rule looks at."""

    test: BasisTest
    p_NV: Array
    place_Q: Indices
    """Which distribution a token is of."""
    tau_Q: Array
    token_Q: Indices
    scaled_Q: Array
    """κ·p̂ᵢ."""
    accepted_Q: NDArray[np.bool_]

    def calibrate(self, *, fit: float = 0.5, lengths: bool = True) -> Calibration:
        """Fit g on the first share `fit` of the distributions, and measure it on the others."""
        if not 0 < fit < 1:
            raise ValueError(
                f"fit is {fit}; it is the share of the distributions to fit on, between 0 and 1."
            )
        cut = min(max(round(fit * len(self.p_NV)), 1), len(self.p_NV) - 1)
        first_Q = self.place_Q < cut
        of_rows = self.test.row_lengths(self.p_NV[:cut]) if lengths else None
        weighted_Q = self.scaled_Q if of_rows is None else self.scaled_Q * of_rows.values_V[self.token_Q]
        at = {float(tau): self.tau_Q == tau for tau in np.unique(self.tau_Q)}
        seen = {
            tau: list(zip(weighted_Q[at_Q & first_Q], self.accepted_Q[at_Q & first_Q], strict=True))
            for tau, at_Q in at.items()
        }
        rule = fitted(self.test.m, seen, of_rows)
        g_Q = np.select(list(at.values()), [np.float64(rule.threshold(tau)) for tau in at])
        right_Q = (weighted_Q >= g_Q) == self.accepted_Q
        held_out = {tau: right_Q[at_Q & ~first_Q] for tau, at_Q in at.items()}
        return Calibration(
            rule,
            fitted=float(right_Q[first_Q].mean()),
            held_out=float(right_Q[~first_Q].mean()) if not first_Q.all() else float("nan"),
            held_out_by_tau={tau: float(right.mean()) for tau, right in held_out.items() if len(right)},
            counts=(int(first_Q.sum()), int((~first_Q).sum())),
        )


def fitted(
    m: int, seen: dict[float, list[tuple[float, bool]]], lengths: RowLengths | None = None
) -> KappaRule:
    """A knot for each τ with verdicts of both kinds: one kind alone only bounds g from one side.

    `seen` holds κ·p̂ᵢ·ℓᵢ and the verdict, by τ.
    """
    some = {tau: seen[tau] for tau in sorted(seen) if seen[tau]}
    both = {tau: pairs for tau, pairs in some.items() if len({verdict for _, verdict in pairs}) == 2}
    knots = {slope_from_tau(tau): best_threshold(pairs) for tau, pairs in (both or some).items()}
    if not knots:
        raise ValueError("No token with probability below any of the taus: nothing to fit on.")
    return KappaRule(m, tuple(knots), tuple(knots.values()), lengths)


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
