"""Decide tokens of one distribution: cheap proofs first, dear ones last, and stop at the first.

    threshold · least squares · Douglas–Rachford on n, 4n, 16n rows and on all · interior point on what is left open

Which side is tried first follows a guess, accept ⇔ κp̂ᵢ ≥ 0.8·m^0.45·c^0.85 (c^0.4 above c = 1); a wrong guess costs time only.
Rejection needs multipliers of real rows: heads of growing size. Acceptance needs a λ that knows of the whole vocabulary:
a head and a sample that stands for the rest, and its proof is then a pass over all rows.

The question: Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.douglas_rachford import AIM, DouglasRachford, Snapshot
from unspool.basis.globbing import globbed
from unspool.basis.lewis import FAINT, Metric
from unspool.basis.reject import Balance
from unspool.basis.theory import slope_from_tau
from unspool.basis.workbench import Workbench

# The most multiplications that factorising one level may cost: above, a test ends undecided.
WORK = 2e11


@dataclass(eq=False)
class Case:
    """One token on its way through the ladder."""

    token: int
    goal: float
    """p̂ᵢ"""
    guess: float
    """κp̂ᵢ/g: above 1 where acceptance is to be expected."""
    low: float = 0.0
    high: float = inf
    iterations: int = 0
    rows: int = 0
    leaning: bool = False
    """Towards acceptance: the sampled problem was not balanced, but its λ did not prove it either."""
    verdict: Verdict | None = None


class Ladder:
    """One climb, for tokens that share distribution and τ."""

    def __init__(self, bench: Workbench, tokens: Indices, tau: float) -> None:
        self.bench, self.tau, self.slope = bench, tau, slope_from_tau(tau)
        dist, width = bench.dist, bench.white.X_VK.shape[1]
        g = 0.8 * width**0.45 * (self.slope**0.85 if self.slope < 1 else self.slope**0.4)
        self.cases = [Case(int(i), float(dist.p[i]), float(dist.p[i]) * dist.kappa / g) for i in tokens]
        self._began = perf_counter()
        self._tried: set[tuple[int, int]] = set()
        self._last: dict[int, Snapshot] = {}
        self.trace: list = []

    def climb(self) -> list[Verdict]:
        """The verdicts, in the tokens' order."""
        n = self.bench.first
        T=[perf_counter()]
        def mark(): T.append(perf_counter()); self.trace.append((T[-1]-T[-2], len(self._open())))
        self._threshold()
        if self.bench.white.m > 1:
            self._least_squares(lambda case: case.guess > 0.8); mark()
            self._head(n, 8, lambda case: case.guess < 1.25); mark()
            self._head(4 * n, 25, lambda case: case.guess < 0.7); mark()
            self._sampled(n, 15); mark()
            self._head(n, 8, lambda case: not case.leaning); mark()
            self._head(4 * n, 25, lambda case: not case.leaning); mark()
            self._sampled(4 * n, 30); mark()
            self._head(16 * n, 30, lambda case: not case.leaning); mark()
            self._least_squares(lambda case: case.guess <= 0.8)
            for case in self._open():
                self._whole(case)
            mark()
        for case in self._open():
            self._verdict(case, False, "undecided", None)
        return [case.verdict for case in self.cases if case.verdict is not None]

    # ── the rungs ─────────────────────────────────────────────────────────────────────────────────────

    def _threshold(self) -> None:
        """p̂ᵢ > τ: the constant λ proves it. Without a basis (rank 0) that is all there is, and y = c·p̂ proves the rest."""
        white, p_V = self.bench.white, self.bench.dist.p
        for case in self.cases:
            case.high = self.slope * (1 - case.goal)
            if case.high * (1 + 1e-12) < case.goal:
                slopes_M = np.zeros(white.m)
                slopes_M[-1] = 1
                self._verdict(case, True, "threshold", Acceptance(case.token, slopes_M))
            elif white.m == 1:
                case.low = case.high
                others = np.flatnonzero(p_V)
                others = others[others != case.token]
                shift_N = p_V[others] * (case.goal / (1 - case.goal))
                self._verdict(case, False, "threshold", Rejection(case.token, others, shift_N))

    def _least_squares(self, which: Callable[[Case], bool]) -> None:
        cases = self._open(which)
        if cases and self.bench.least_squares.usable:
            lam_KQ = self.bench.least_squares.slopes(_tokens(cases))
            self._accept(cases, lam_KQ, "least squares", None)

    def _head(self, n: int, iterations: int, which: Callable[[Case], bool]) -> None:
        """Try to reject by the n most probable rows alone."""
        cases = [case for case in self._open(which) if (case.token, n) not in self._tried]
        if cases and self._affordable(n):
            self._tried |= {(case.token, n) for case in cases}
            self._search(self.bench.head(n), cases, iterations, self.bench.balance(n))

    def _sampled(self, n: int, iterations: int) -> None:
        """Try to accept by a λ that knows of all rows; what stays open without being balanced leans to acceptance."""
        cases = self._open()
        if not cases or not self._affordable(n):
            return
        metric = self.bench.sampled(n)
        for case in cases:
            case.leaning = False
        for case in self._search(metric, cases, iterations, self.bench.balance(n) if metric.rows.real else None):
            case.leaning = True

    def _whole(self, case: Case) -> None:
        """Search all rows and close what bracket is left by the interior-point method, in turns."""
        bench = self.bench
        if not self._affordable(bench.dist.vocabulary, grow=False):
            return
        search = DouglasRachford(bench.white, bench.dist, bench.whole, _tokens([case]), self.slope)
        if case.token in self._last:
            search.resume(self._last[case.token])
        free = max(2048, 4 * len(search.lam_KQ))
        for turn in range(4):
            lam_K = self._search_whole(case, search, 20)
            if case.verdict is None:
                self._close(case, search, lam_K, free << turn)
            if case.verdict is not None:
                return

    def _search_whole(self, case: Case, search: DouglasRachford, iterations: int) -> Array:
        """The best λ of some more iterations, with xᵢ·λ = 1."""
        goal, tried, best, lam_K = float(search.goal_Q[0]), inf, inf, search.lam_KQ[:, 0]
        case.rows = self.bench.dist.vocabulary
        for _ in range(iterations):
            search.iterate()
            case.iterations += 1
            upper = float(search.upper()[0])
            if upper < best:
                best, lam_K = upper, search.lam_KQ[:, 0]
            if search.stretch()[0] <= 1:
                self._reject_whole(case, search.a_SQ[:, 0].astype(np.float64), goal * AIM, "douglas-rachford")
            elif upper < 0.999 * goal and upper < 0.99 * tried:
                tried = upper
                self._accept([case], search.lam_KQ.astype(np.float64), "douglas-rachford", self.bench.whole)
            if case.verdict is not None:
                break
        own = float(search.x_KQ[:, 0] @ lam_K)
        return lam_K.astype(np.float64) / own if own > 0 else np.zeros(len(lam_K))

    def _close(self, case: Case, search: DouglasRachford, lam_K: Array, free: int) -> None:
        bench, dist = self.bench, self.bench.dist
        goal, mass_V = float(search.goal_Q[0]), dist.p * dist.kappa
        mass_V[mass_V <= FAINT] = 0
        y_V, s_V = search.sides(mass_V)
        for lam_K, y_V, t in globbed(bench.white, mass_V, case.token, self.slope, lam_K, y_V, s_V, goal, free):
            case.iterations += 1
            if t > goal:
                self._reject_whole(case, y_V, t, "interior point")
            if case.verdict is None:
                self._accept([case], lam_K[:, None], "interior point", None)
            if case.verdict is not None or case.high * dist.kappa < t * (1 + 1e-6):
                return

    # ── what the rungs stand on ───────────────────────────────────────────────────────────────────────

    def _search(
        self, metric: Metric, cases: list[Case], iterations: int, balance: Balance | None
    ) -> list[Case]:
        """Iterate until every case is decided, or this metric has said what it can; those about which it has not."""
        search = DouglasRachford(self.bench.white, self.bench.dist, metric, _tokens(cases), self.slope)
        cases = list(cases)
        tried_Q, refused_Q = np.full(len(cases), inf), np.full(len(cases), inf)
        for iteration in range(iterations):
            search.iterate()
            how = "douglas-rachford" if iteration else "least squares"
            for case in cases:
                case.iterations += 1
                case.rows = max(case.rows, metric.hard + len(metric.rows.tokens_S))
            stretch_Q, upper_Q, goal_Q = search.stretch(), search.upper(), search.goal_Q
            balanced_Q = stretch_Q <= 1
            if balance is not None:
                at = np.flatnonzero(balanced_Q & (stretch_Q < 0.9995 * refused_Q))
                refused_Q[at] = stretch_Q[at]
                self._reject(_at(cases, at), balance, search.multipliers(at), goal_Q[at] * AIM, how)
            if metric.rows.complete:
                at = np.flatnonzero((upper_Q < 0.995 * goal_Q) & (upper_Q < 0.99 * tried_Q))
                at = at[[cases[q].verdict is None for q in at]] if len(at) else at
                tried_Q[at] = upper_Q[at]
                self._accept(_at(cases, at), search.lam_KQ[:, at].astype(np.float64), how, metric)
            done_Q = np.array([case.verdict is not None for case in cases])
            if not metric.rows.complete:
                done_Q |= upper_Q < 0.98 * goal_Q  # these rows alone cannot balance the token
            elif not metric.rows.real:
                done_Q |= balanced_Q  # to be expected of the real rows as well
            if metric.rows.complete and (done_Q.any() or iteration == iterations - 1):
                for q, case in enumerate(cases):
                    self._last[case.token] = search.snapshot(q)
            if done_Q.any():
                keep = np.flatnonzero(~done_Q)
                cases, tried_Q, refused_Q = _at(cases, keep), tried_Q[keep], refused_Q[keep]
                if not cases:
                    break
                search.keep(keep)
        return cases

    def _accept(self, cases: list[Case], lam_KQ: Array, how: str, metric: Metric | None) -> None:
        if not cases:
            return
        upper = self.bench.evaluator.upper(lam_KQ, _tokens(cases), self.slope, metric)
        for q, case in enumerate(cases):
            case.high = min(case.high, float(upper.value_Q[q]))
            case.rows = max(case.rows, int(upper.rows_Q[q]))
            if upper.proved_Q[q]:
                self._verdict(case, True, how, Acceptance(case.token, upper.slopes_MQ[:, q].copy()))

    def _reject(
        self, cases: list[Case], balance: Balance, y_NQ: Array, t_Q: Array, how: str, tail_V: Array | None = None
    ) -> None:
        if not cases:
            return
        found, low_Q = balance.prove(y_NQ, t_Q, _tokens(cases), self.slope, tail_V)
        for case, certificate, low in zip(cases, found, low_Q, strict=True):
            case.low = max(case.low, float(low))
            if certificate is not None:
                self._verdict(case, False, how, certificate)

    def _reject_whole(self, case: Case, y_V: Array, t: float, how: str) -> None:
        """Multipliers of the whole vocabulary: those of the head are made exact, the others stay."""
        balance = self.bench.balance(min(4 * self.bench.first, self.bench.dist.support))
        tail_V = y_V.copy()
        tail_V[balance.tokens_N] = 0
        tail_V[case.token] = 0
        self._reject([case], balance, y_V[balance.tokens_N][:, None], np.array([t]), how, tail_V)

    def _verdict(
        self, case: Case, accepted: bool, how: str, certificate: Acceptance | Rejection | None
    ) -> Verdict:
        seconds = perf_counter() - self._began
        case.verdict = Verdict(
            accepted, case.token, self.tau, how, certificate, case.low, case.high, case.iterations, case.rows, seconds
        )
        return case.verdict

    def _open(self, which: Callable[[Case], bool] = lambda case: True) -> list[Case]:
        return [case for case in self.cases if case.verdict is None and which(case)]

    def _affordable(self, n: int, grow: bool = True) -> bool:
        """Whether a level of n rows is more than the one before it, and not too dear."""
        bench = self.bench
        new = n <= bench.first or n < bench.dist.support or not grow
        return new and n * bench.white.X_VK.shape[1] ** 2 <= WORK


def _tokens(cases: list[Case]) -> Indices:
    return np.array([case.token for case in cases], dtype=np.intp)


def _at(cases: list[Case], places: Indices) -> list[Case]:
    return [cases[q] for q in places]
