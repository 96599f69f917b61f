"""Fit the κ rule to exact verdicts and measure its agreement on held-out ones.

    g(c) = the threshold on κ·p̂ᵢ·ℓᵢ with the fewest disagreements at that c = τ/(1 − τ)

If all verdicts at a τ agree, that τ gives no threshold and g is interpolated from the others.

A rule fitted to few verdicts may be worse than the formula of `KappaRule.typical`, so five-fold
cross-validation over the distributions compares the two. Among the verdicts on which they differ, the
fitted rule is right w times and the formula l times. The fitted rule is better if

    w − l > √(w + l)

which is one standard deviation of w − l if both are equally good (McNemar 1947); otherwise a warning is
given.

The exact test is that of Finlayson et al. 2024, §4 (papers.bib: finlayson2024closing, mcnemar1947note).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.arguments import as_bool, as_int, as_number, items
from unspool.basis.arrays import Array, Indices, as_float64
from unspool.basis.kappa_rule import KappaRule, RowLengths
from unspool.basis.theory import check_tau, slope_from_tau

if TYPE_CHECKING:
    from unspool.basis.basis_test import BasisTest

Mask = NDArray[np.bool_]

FOLDS = 5
"""Folds of the cross-validation over distributions."""
MAX_TOKENS = 10**6
"""The largest number of tokens tested per distribution."""


@dataclass(frozen=True)
class FormulaComparison:
    """Cross-validated agreement of fitted rules and of the formula of `KappaRule.typical`."""

    fitted: float
    """Agreement of fitted rules with the exact test on held-out folds."""
    formula: float
    """Agreement of the formula on the same verdicts."""
    verdicts: int
    is_better: bool


@dataclass(frozen=True)
class Calibration:
    """A fitted rule and its agreement with the exact test."""

    rule: KappaRule
    fitted: float
    """Agreement on the verdicts that it was fitted to."""
    held_out: float
    """Agreement on held-out verdicts."""
    held_out_by_tau: dict[float, float]
    counts: tuple[int, int]
    """The numbers of verdicts: fitted, held out."""
    comparison: FormulaComparison
    undecided: int = 0
    """Tokens that the exact test left undecided within its budget; they are not used."""


def collect_verdicts(
    test: BasisTest, p: ArrayLike, taus: Sequence[float], *, tokens: int = 8, seed: int = 0
) -> ExactVerdicts:
    """Exact verdicts to fit κ rules to: for each distribution of p (N, V) and each τ, on `tokens` tokens
    below τ that are drawn from p̂, as a sampler would."""
    taus = [check_tau(tau) for tau in items("taus", taus, "a list of thresholds, such as [0.1, 0.5]")]
    rng = np.random.default_rng(as_int("seed", seed, at_least=0, at_most=2**128))
    tokens = as_int("tokens", tokens, at_least=1, at_most=MAX_TOKENS)
    p_NV = as_float64(p)
    if p_NV.ndim != 2 or len(p_NV) < 2:
        raise ValueError(f"p has shape {p_NV.shape}; expected at least two distributions, (N, V)")
    undecided = 0
    rows: list[tuple[int, float, int, float, bool]] = []
    for n, p_V in enumerate(p_NV):
        step = test.step(p_V)
        dist = step.distribution
        for tau in taus:
            below_V = np.where(dist.p < tau, dist.p, 0.0)
            if not (mass := below_V.sum()) > 0:
                continue
            for i in np.unique(rng.choice(len(below_V), size=tokens, p=below_V / mass)).tolist():
                verdict = step.accepts(i, tau=tau)
                if verdict.decided:
                    rows.append((n, tau, i, float(dist.kappa * dist.p[i]), verdict.accepted))
                else:
                    undecided += 1
    if not rows:
        raise ValueError(
            f"the exact test left all {undecided} tokens undecided: use a larger BasisTest(W, rank, budget=…)"
            if undecided
            else "no token has a probability below any of the taus"
        )
    distribution_Q, tau_Q, token_Q, scaled_Q, accepted_Q = map(np.array, zip(*rows, strict=True))
    return ExactVerdicts(test, p_NV, distribution_Q, tau_Q, token_Q, scaled_Q, accepted_Q, undecided)


@dataclass(frozen=True, eq=False)
class ExactVerdicts:
    """Verdicts of the exact test on Q tokens, with the inputs of the κ rule."""

    test: BasisTest
    p_NV: Array
    distribution_Q: Indices
    tau_Q: Array
    token_Q: Indices
    scaled_Q: Array
    """κ·p̂ᵢ."""
    accepted_Q: Mask
    undecided: int = 0

    def calibrate(self, *, fit: float = 0.5, lengths: bool = True) -> Calibration:
        """Fit g to the first share `fit` of the distributions, and measure it on the others."""
        as_bool("lengths", lengths)
        share = as_number("fit", fit, above=0, below=1, advice="It is the share of distributions to fit.")
        count = len(self.p_NV)
        first_N = np.arange(count) < min(max(round(share * count), 1), count - 1)
        rule, first_Q = self.fit_rule(first_N, lengths), first_N[self.distribution_Q]
        right_Q = self.predict(rule) == self.accepted_Q
        held_out = {float(tau): right_Q[~first_Q & (self.tau_Q == tau)] for tau in np.unique(self.tau_Q)}
        return Calibration(
            rule,
            fitted=float(right_Q[first_Q].mean()),
            held_out=_mean(right_Q[~first_Q]),
            held_out_by_tau={tau: float(right.mean()) for tau, right in held_out.items() if len(right)},
            counts=(int(first_Q.sum()), int((~first_Q).sum())),
            comparison=self.compare_with_formula(lengths),
            undecided=self.undecided,
        )

    def fit_rule(self, chosen_N: Mask, lengths: bool) -> KappaRule:
        """The rule fitted to the verdicts of these distributions.

        It has one knot per τ with verdicts of both kinds; one kind only bounds g from one side.
        """
        row_lengths = self.test.row_lengths(self.p_NV[chosen_N]) if lengths else None
        scores_Q, chosen_Q = self._scores(row_lengths), chosen_N[self.distribution_Q]
        at_tau = {float(tau): chosen_Q & (self.tau_Q == tau) for tau in np.unique(self.tau_Q[chosen_Q])}
        if not at_tau:
            raise ValueError("no token has a probability below any of the taus")
        both = {tau: at_Q for tau, at_Q in at_tau.items() if len(np.unique(self.accepted_Q[at_Q])) == 2}
        knots = {
            slope_from_tau(tau): best_threshold(scores_Q[at_Q], self.accepted_Q[at_Q])
            for tau, at_Q in (both or at_tau).items()
        }
        return KappaRule(self.test.m, tuple(knots), tuple(knots.values()), row_lengths)

    def predict(self, rule: KappaRule) -> Mask:
        taus, at_Q = np.unique(self.tau_Q, return_inverse=True)
        g_Q = np.array([rule.threshold(float(tau)) for tau in taus])[at_Q]
        return np.asarray(self._scores(rule.lengths) >= g_Q)

    def compare_with_formula(self, lengths: bool) -> FormulaComparison:
        """Cross-validate: predict each fold by a rule fitted to the other folds."""
        fold_N = np.arange(len(self.p_NV)) * FOLDS // len(self.p_NV)
        fold_Q, predicted_Q = fold_N[self.distribution_Q], np.zeros(len(self.distribution_Q), dtype=bool)
        tested_Q = np.zeros(len(self.distribution_Q), dtype=bool)
        for fold in np.unique(fold_Q):
            in_fold_Q = fold_Q == fold
            if not in_fold_Q.all():
                predicted_Q[in_fold_Q] = self.predict(self.fit_rule(fold_N != fold, lengths))[in_fold_Q]
                tested_Q |= in_fold_Q
        fitted_Q = (predicted_Q == self.accepted_Q)[tested_Q]
        formula_Q = (self.predict(KappaRule.typical(self.test.m)) == self.accepted_Q)[tested_Q]
        wins, losses = int((fitted_Q & ~formula_Q).sum()), int((formula_Q & ~fitted_Q).sum())
        is_better = wins - losses > sqrt(wins + losses)
        return FormulaComparison(_mean(fitted_Q), _mean(formula_Q), len(fitted_Q), is_better)

    def _scores(self, lengths: RowLengths | None) -> Array:
        """κ·p̂ᵢ·ℓᵢ."""
        return self.scaled_Q if lengths is None else self.scaled_Q * lengths.values_V[self.token_Q]


def best_threshold(scores_Q: Array, accepted_Q: Mask) -> float:
    """The g with the fewest errors, the geometric mean of its two neighbours."""
    order_Q = np.argsort(scores_Q)
    scores_Q, accepted_Q = scores_Q[order_Q], accepted_Q[order_Q]
    # A threshold before rank r accepts everything from r on.
    wrong = np.append(0, np.cumsum(accepted_Q)) + np.append(np.cumsum(~accepted_Q[::-1])[::-1], 0)
    r = int(np.argmin(wrong))
    low, high = scores_Q[max(r - 1, 0)], scores_Q[min(r, len(scores_Q) - 1)]
    return float(np.sqrt(low * high))


def _mean(right_Q: Mask) -> float:
    return float(right_Q.mean()) if len(right_Q) else float("nan")
