"""Fit the κ rule on exact verdicts, and measure it on others.

    g(c) = the threshold on κ·p̂ᵢ·ℓᵢ with the fewest disagreements at that c = τ/(1 − τ)

A τ at which everything was accepted, or nothing, gives no threshold: g is taken from the others there.

Few verdicts fit a rule that is worse than no fit at all, so that it is compared with the formula of
`KappaRule.typical` by cross-validation: the distributions are parted in five, each part is judged by a rule
fitted on the other four, and of all verdicts on which that rule and the formula differ, w were the fitted
rule's to get right and l the formula's. It is better if

    w − l > √(w + l)

one standard deviation of w − l where both are as good (McNemar 1947); else there is a warning.

The rule is in kappa_rule.py; the exact test is Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing, mcnemar1947note
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.basis.arrays import Array, Indices, float64, real, shown, whole
from unspool.basis.kappa_rule import KappaRule
from unspool.basis.row_lengths import RowLengths
from unspool.basis.theory import checked_tau, slope_from_tau

if TYPE_CHECKING:
    from unspool.basis.basis_test import BasisTest

Mask = NDArray[np.bool_]

PARTS = 5
"""Of the distributions, in cross-validation."""
MOST_TOKENS = 10**6
"""Of one distribution; no vocabulary has more that are worth a question."""


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
    beside_formula: BesideFormula
    """Whether it was worth it."""
    undecided: int = 0
    """Tokens that the exact test left open within its budget: neither fitted on nor held out."""


@dataclass(frozen=True)
class BesideFormula:
    """Rules fitted as this one was, and the formula of `KappaRule.typical`, on the same verdicts."""

    fitted: float
    """Agreement with the exact test by cross-validation: no rule is judged on what it was fitted on."""
    formula: float
    """Agreement of the formula, which was fitted on none of them."""
    verdicts: int
    better: bool
    """Whether the fitted rules were right where the formula was not more often than chance explains."""


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
    fitted on; without, ℓ = 1, and it needs nothing of W. Lengths are the default for what
    docs/results/basis.md measures: much more agreement at rank 100 of SmolLM2, hardly a difference at
    ranks 20 and 576.

    There is a warning where the rule is not better than the formula that needs no fit, `KappaRule.typical`.
    """
    found = exact_verdicts(test, p, taus, tokens=tokens, seed=seed).calibrate(fit=fit, lengths=lengths)
    beside = found.beside_formula
    if not beside.better:
        warnings.warn(
            f"The fitted κ rule is not better than the formula that needs no fit: on {beside.verdicts} "
            f"verdicts, none of them judged by a rule that was fitted on it, rules fitted as this one agree "
            f"with the exact test on {beside.fitted:.1%}, KappaRule.typical({test.m}) on "
            f"{beside.formula:.1%}. Take the formula (it is what BasisAware takes without a rule), or fit on "
            f"more distributions.",
            UserWarning,
            stacklevel=3,
        )
    return found


def exact_verdicts(
    test: BasisTest, p: ArrayLike, taus: Sequence[float], *, tokens: int = 8, seed: int = 0
) -> ExactVerdicts:
    """Have the exact test decide on tokens of the distributions p (N, V): either form of the rule fits."""
    if not hasattr(test, "step") or not hasattr(test, "row_lengths"):
        raise TypeError(f"test is {shown(test)}; expected the BasisTest that the rule is to imitate.")
    taus = taus.tolist() if hasattr(taus, "tolist") else taus
    if not isinstance(taus, Sequence) or isinstance(taus, str | bytes) or not taus:
        raise TypeError(f"taus is {shown(taus)}; expected a list of thresholds, such as [0.1, 0.5].")
    taus, dice = [checked_tau(tau) for tau in taus], np.random.default_rng(_count("seed", seed, 0, 2**128))
    tokens = _count("tokens", tokens, 1, MOST_TOKENS)
    p_NV = float64(p)
    if p_NV.ndim != 2 or len(p_NV) < 2:
        raise ValueError(f"p has shape {p_NV.shape}; calibration needs at least two distributions, (N, V).")
    undecided = 0
    found: list[tuple[int, float, int, float, bool]] = []
    for n, p_V in enumerate(p_NV):
        step = test.step(p_V)
        for tau in taus:
            for i in _ask_about(step.distribution.p, tau, tokens, dice):
                verdict = step.accepts(i, tau=tau)
                undecided += not verdict.decided
                if verdict.decided:
                    found.append((n, tau, i, float(step.kappa * step.distribution.p[i]), verdict.accepted))
    if undecided and not found:
        raise ValueError(
            f"The exact test decided none of {undecided} tokens within its budget: nothing to fit on. Give "
            f"it more, BasisTest(W, rank, budget=…), or None for no limit."
        )
    if not found:
        raise ValueError("No token with probability below any of the taus: nothing to fit on.")
    place, tau_of, token, scaled_of, accepted = map(np.array, zip(*found, strict=True))
    return ExactVerdicts(test, p_NV, place, tau_of, token, scaled_of, accepted, undecided)


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
    accepted_Q: Mask
    undecided: int = 0
    """Tokens beside these that it left open."""

    def calibrate(self, *, fit: float = 0.5, lengths: bool = True) -> Calibration:
        """Fit g on the first share `fit` of the distributions, and measure it on the others."""
        if not isinstance(lengths, bool):
            raise TypeError(f"lengths is {shown(lengths)}; expected True or False.")
        share = real(fit)
        if share is None or not 0 < share < 1:
            raise (TypeError if share is None else ValueError)(
                f"fit is {shown(fit)}; it is the share of the distributions to fit on, between 0 and 1."
            )
        count = len(self.p_NV)
        first_N = np.arange(count) < min(max(round(share * count), 1), count - 1)
        rule, first_Q = self.rule_of(first_N, lengths), first_N[self.place_Q]
        right_Q = self.said_by(rule) == self.accepted_Q
        held_out = {float(tau): right_Q[~first_Q & (self.tau_Q == tau)] for tau in np.unique(self.tau_Q)}
        return Calibration(
            rule,
            fitted=float(right_Q[first_Q].mean()),
            held_out=float(right_Q[~first_Q].mean()) if not first_Q.all() else float("nan"),
            held_out_by_tau={tau: float(right.mean()) for tau, right in held_out.items() if len(right)},
            counts=(int(first_Q.sum()), int((~first_Q).sum())),
            beside_formula=self.beside_formula(lengths),
            undecided=self.undecided,
        )

    def rule_of(self, some_N: Mask, lengths: bool) -> KappaRule:
        """The rule fitted on the verdicts of some distributions."""
        of_rows, some_Q = self.test.row_lengths(self.p_NV[some_N]) if lengths else None, some_N[self.place_Q]
        weighted_Q, seen = self._weighted(of_rows), {}
        for tau in np.unique(self.tau_Q):
            at_Q = some_Q & (self.tau_Q == tau)
            seen[float(tau)] = list(zip(weighted_Q[at_Q], self.accepted_Q[at_Q], strict=True))
        return fitted(self.test.m, seen, of_rows)

    def said_by(self, rule: KappaRule) -> Mask:
        """What a rule says of the same tokens."""
        taus, at_Q = np.unique(self.tau_Q, return_inverse=True)
        g_Q = np.array([rule.threshold(float(tau)) for tau in taus])[at_Q]
        return np.asarray(self._weighted(rule.lengths) >= g_Q)

    def beside_formula(self, lengths: bool) -> BesideFormula:
        """Cross-validation: each part of the distributions is judged by a rule fitted on all others."""
        part_N = np.arange(len(self.p_NV)) * PARTS // len(self.p_NV)
        part_Q, said_Q = part_N[self.place_Q], np.zeros(len(self.place_Q), dtype=bool)
        judged_Q = np.zeros(len(self.place_Q), dtype=bool)
        for part in np.unique(part_Q):
            here_Q = part_Q == part
            if not here_Q.all():
                said_Q[here_Q] = self.said_by(self.rule_of(part_N != part, lengths))[here_Q]
                judged_Q |= here_Q
        fitted_Q = (said_Q == self.accepted_Q)[judged_Q]
        formula_Q = (self.said_by(KappaRule.typical(self.test.m)) == self.accepted_Q)[judged_Q]
        won, lost = int((fitted_Q & ~formula_Q).sum()), int((formula_Q & ~fitted_Q).sum())
        return BesideFormula(
            float(fitted_Q.mean()) if len(fitted_Q) else float("nan"),
            float(formula_Q.mean()) if len(formula_Q) else float("nan"),
            len(fitted_Q),
            better=won - lost > sqrt(won + lost),
        )

    def _weighted(self, lengths: RowLengths | None) -> Array:
        """κ·p̂ᵢ·ℓᵢ."""
        return self.scaled_Q if lengths is None else self.scaled_Q * lengths.values_V[self.token_Q]


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


def _count(name: str, value: Any, at_least: int, at_most: int) -> int:
    found = whole(value)
    if found is None or not at_least <= found <= at_most:
        raise (TypeError if found is None else ValueError)(
            f"{name} is {shown(value)}; expected a whole number from {at_least} to {at_most:,}."
        )
    return found


def _ask_about(p_V: Array, tau: float, tokens: int, dice: np.random.Generator) -> list[int]:
    below_V = np.where(p_V < tau, p_V, 0.0)
    mass = below_V.sum()
    if not mass > 0:
        return []
    return [int(i) for i in np.unique(dice.choice(len(p_V), size=tokens, p=below_V / mass))]
