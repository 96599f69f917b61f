"""Decide tokens of one distribution: cheap proofs first, dear ones last, and stop at the first.

    threshold · least squares · Douglas–Rachford on n, 4n and all rows · interior point

Which side is tried first follows a guess, accept ⇔ κp̂ᵢ ≥ 0.8·m^0.45·c^0.85 (c^0.4 where c > 1); a wrong
guess costs time only. Rejection needs multipliers of real rows: of a head alone, or of a head and, beside it,
of thousands of rows that keep the multipliers which an earlier search gives them. Acceptance needs a λ that
knows of the whole vocabulary: a head and a sample that stands for the rest; its proof is then a pass over
all.

The question: Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from unspool.basis.arrays import Indices
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.solver.douglas_rachford import SearchSnapshot
from unspool.basis.solver.interior_point import solve_reduced
from unspool.basis.solver.level_search import LevelSearch, over_all, over_head, over_head_beside, over_sample
from unspool.basis.solver.lewis_metric import FAINT
from unspool.basis.solver.proof_attempts import Case, ProofAttempts, SharedFactors, tokens_of
from unspool.basis.work import setting

CLOSED = 1e-6


def close_brackets(level: LevelSearch, free: int, hold: bool) -> None:
    """Try to decide the open cases of a search over all rows, leaving `free` rows to be solved for.

    `hold` keeps hard tokens at s = 0: better conditioned, and right but where c is so small that their box
    binds.

    Close the bracket of cases that a search over all rows left open, by the interior-point method.

        settle the rows far from changing sides, solve for the others, look again (reduced_regression.py)

    Portnoy & Koenker 1997, §5.
    papers.bib: portnoy1997gaussian
    """
    attempts, search = level.attempts, level.search
    white, dist = attempts.factors.white, attempts.factors.dist
    hard_H, mass_V = dist.order_N[: search.metric.hard if hold else 0], dist.p * dist.kappa
    mass_V[mass_V <= FAINT] = 0
    for q, case in enumerate(level.cases):
        goal, lam_K = float(search.goal_Q[q]), level.best_KQ[:, q].astype(np.float64)
        own = float(search.x_KQ[:, q] @ lam_K)
        lam_K = lam_K / own if own > 0 else np.zeros_like(lam_K)
        sides = search.sides(q, mass_V)
        rounds = solve_reduced(
            white, hard_H, mass_V, case.token, attempts.slope, lam_K, *sides, goal, free, case.spend
        )
        for found_K, y_V, t in rounds:
            case.iterations += 1
            if t > goal:
                attempts.reject_whole(case, y_V, t, "interior point")
            if case.verdict is None:
                attempts.accept([case], found_K[:, None], "interior point")
            if case.verdict is not None or case.high * dist.kappa < t * (1 + CLOSED):
                break
    level.drop_decided()


# Where c is small the splitting method is slow, and the interior-point method is asked sooner.
STEEP = 0.1
# So it is where rows are short: a factorisation is cheap then, beside a pass over all rows.
WIDE = 256
# The least probable rank whose multiplier is not zero in a rejection, but where all rows are searched.
BESIDE = 16384
# So many tokens are looked through for ones that are exactly alike.
TWINS = 256


class Cascade:
    """One run, for tokens that share distribution and τ."""

    def __init__(self, factors: SharedFactors, tokens: Indices, tau: float, budget: float = inf) -> None:
        self.factors = factors
        self.attempts = ProofAttempts(factors, tokens, tau, budget)
        self._width = factors.white.X_VK.shape[1]
        self._known: dict[int, SearchSnapshot] = {}

    def verdicts(self) -> list[Verdict]:
        """The verdicts, in the tokens' order."""
        n = self.factors.first
        self._threshold()
        if self.factors.white.m > 1:
            self._least_squares(lambda case: case.guess > 0.8)
            self._head(n, 8, lambda case: case.guess < 1.25)
            self._head(4 * n, 25, lambda case: case.guess < 0.7)
            self._sampled(n, 15)
            self._beside(n, BESIDE // 4, 8, lambda case: not case.leaning)
            self._sampled(4 * n, 30)
            self._beside(4 * n, BESIDE, 30, lambda _: True)
            self._twins()
            self._least_squares(lambda case: case.guess <= 0.8)
            self._whole()
        for case in self.attempts.open():
            self.attempts.settle(case, False, "undecided", None)
        return [case.verdict for case in self.attempts.cases if case.verdict is not None]

    def _threshold(self) -> None:
        """p̂ᵢ > τ: the constant λ proves it. At rank 0 that is all there is, and y ∝ p̂ proves the rest."""
        white, dist = self.factors.white, self.factors.dist
        for case in self.attempts.cases:
            others = float(dist.mass_N[1]) if case.goal > 0.5 else 1 - case.goal
            case.high = self.attempts.slope * others
            if case.high * (1 + 1e-12) < case.goal:
                slopes_M = np.zeros(white.m)
                slopes_M[-1] = 1
                self.attempts.settle(case, True, "threshold", Acceptance(case.token, slopes_M))
            elif white.m == 1:
                rows_N = np.flatnonzero(dist.p)
                rows_N = rows_N[rows_N != case.token]
                proof = Rejection(case.token, rows_N, dist.p[rows_N] * (case.goal / others))
                if case.high * (1 - 1e-12) > case.goal or self.attempts.is_true(proof):
                    case.low = case.high
                    self.attempts.settle(case, False, "threshold", proof)

    def _least_squares(self, which: Callable[[Case], bool]) -> None:
        """The first λ of all."""
        cases = self.attempts.open(which)
        if cases and self.factors.least_squares.usable:
            lam_KQ = self.factors.least_squares.slopes(tokens_of(cases))
            self.attempts.accept(cases, lam_KQ, "least squares")

    def _head(self, n: int, iterations: int, which: Callable[[Case], bool]) -> None:
        """Reject by the n most probable rows alone."""
        cases = self._affording(self.attempts.open(which), n) if self._is_new(n) else []
        if cases:
            over_head(self.attempts, n, cases).run(iterations)

    def _beside(self, n: int, most: int, iterations: int, which: Callable[[Case], bool]) -> None:
        """Reject by the n most probable rows, beside others that stand where the last search left them."""
        cases = [case for case in self.attempts.open(which) if case.token in self._known]
        cases = self._affording(cases, n) if self._is_new(n) else []
        most = min(max(most, 4 * n), self.factors.dist.support)
        cases = [case for case in cases if case.spend(setting(most, self._width))]
        if cases:
            over_head_beside(self.attempts, n, most, cases, self._known).run(iterations)

    def _sampled(self, n: int, iterations: int) -> None:
        """Accept by a λ that knows of all rows; what is neither accepted nor balanced leans to acceptance."""
        cases = self.attempts.open() if self._is_new(n) else []
        if cases:
            cases = self._affording(cases, len(self.factors.selection(n).tokens_S), n)
        if cases:
            level = over_sample(self.attempts, n, cases, self._known)
            left = level.run(iterations)
            self._known |= level.snapshots
            for case in cases:
                case.leaning = case in left

    def _twins(self) -> None:
        """Tokens with the candidate's very row balance it alone, y ∝ p̂, if they weigh p̂ᵢ/c or more."""
        cases, white, dist = self.attempts.open(), self.factors.white, self.factors.dist
        if not cases:
            return
        top_N = dist.order_N[:TWINS]
        rows_NM = white.rows(top_N)
        for case, own_M in zip(cases, white.rows(tokens_of(cases)), strict=True):
            twins = top_N[(rows_NM == own_M).all(axis=1) & (top_N != case.token)]
            weight = float(dist.p[twins].sum())
            case.low = max(case.low, self.attempts.slope * weight * (1 - 1e-12))
            if case.low > case.goal:
                shift_N = dist.p[twins] * (case.goal / weight)
                self.attempts.settle(case, False, "least squares", Rejection(case.token, twins, shift_N))

    def _whole(self) -> None:
        """Search all rows and close what bracket is left by the interior-point method, in turns."""
        together = max(1, min(16, self._width // 32))  # wider rows gain more from a product of matrices
        cases = self._affording(self.attempts.open(), self.factors.dist.vocabulary)
        for start in range(0, len(cases), together):
            level = over_all(self.attempts, cases[start : start + together], self._known)
            free, iterations = max(2048, 4 * self._width), self._before_closing()
            for hold in (True, False, True, False):
                level.run(iterations)
                close_brackets(level, free, hold)
                free, iterations = 2 * free, 20

    def _before_closing(self) -> int:
        """Iterations of the splitting method before the interior-point method is asked."""
        if self._width < WIDE:
            return 6
        return 10 if self.attempts.slope < STEEP else 30

    def _is_new(self, n: int) -> bool:
        """Whether a level of n rows is more than the one before it."""
        return n <= self.factors.first or n < self.factors.dist.support

    def _affording(self, cases: list[Case], rows: int, head: int = 0) -> list[Case]:
        """Those whose budget is enough for a level of so many rows, of which some may be paid for."""
        return [case for case in cases if case.spend_on_level(rows, self._width, head)]
