"""Run a Douglas–Rachford search over one level's rows, and try its iterates as proofs while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.douglas_rachford import AIM, DouglasRachford, SearchSnapshot
from unspool.basis.solver.proof_attempts import Case, ProofAttempts, tokens_of
from unspool.basis.solver.rejection_proof import Balance, settle
from unspool.basis.work import iterating

# With so many tokens, proofs are tried at every second iteration only, and so on: in batches.
BATCH = 4
# f(λ) over the search's rows must be below this share of p̂ᵢ before it is worth evaluating over W itself.
NEARLY = 0.997

Reject = Callable[[list[Case], Indices, str], None]


class LevelSearch:
    """One search for several cases: those proven, or about which these rows have said enough, leave it."""

    def __init__(
        self, attempts: ProofAttempts, search: DouglasRachford, cases: list[Case], reject: Reject | None
    ) -> None:
        self.attempts, self.search, self.cases, self._reject = attempts, search, list(cases), reject
        self._tried_Q = np.full(len(cases), np.inf)
        self._refused_Q = np.full(len(cases), np.inf)
        self.best_Q = np.full(len(cases), np.inf)
        self.best_KQ = search.lam_KQ.copy()
        self.snapshots: dict[int, SearchSnapshot] = {}
        self._iteration = 0

    def run(self, iterations: int) -> list[Case]:
        """Iterate; the cases about which these rows have not said what they can."""
        stride = 1 + len(self.cases) // BATCH
        rows, unknowns = self.search.metric.rows.X_SK.shape
        for turn in range(iterations):
            if not self.cases:
                break
            self.search.iterate()
            self._iteration += 1
            for case in self.cases:
                case.iterations += 1
                case.work += iterating(rows, unknowns)
                case.rows = max(case.rows, self.search.metric.hard + len(self.search.metric.rows.tokens_S))
            upper_Q = self.search.upper()
            better = np.flatnonzero(upper_Q < self.best_Q)
            self.best_Q[better], self.best_KQ[:, better] = upper_Q[better], self.search.lam_KQ[:, better]
            if turn % stride == 0 or turn == iterations - 1:
                self._leave(self._prove(upper_Q))
            self._leave(np.array([case.work > case.budget for case in self.cases], dtype=bool))
        self._remember(range(len(self.cases)))
        return self.cases

    def _prove(self, upper_Q: Array) -> NDArray[np.bool_]:
        """Try what looks like a proof; which columns are done."""
        search, rows = self.search, self.search.metric.rows
        how = "douglas-rachford" if self._iteration > 1 else "least squares"
        stretch_Q, goal_Q = search.stretch(), search.goal_Q
        balanced_Q = stretch_Q <= 1
        if self._reject is not None:
            at = np.flatnonzero(balanced_Q & (stretch_Q < 0.9995 * self._refused_Q))
            self._refused_Q[at] = stretch_Q[at]
            self._reject(self._at(at), at, how)
        if rows.complete:
            undecided_Q = np.array([case.verdict is None for case in self.cases])
            good_Q = (upper_Q < NEARLY * goal_Q) & (upper_Q < 0.99 * self._tried_Q)
            at = np.flatnonzero(undecided_Q & good_Q)
            self._tried_Q[at] = upper_Q[at]
            self.attempts.accept(self._at(at), search.lam_KQ[:, at].astype(np.float64), how, search.metric)
        done_Q = np.array([case.verdict is not None for case in self.cases])
        if not rows.complete:
            done_Q |= upper_Q < 0.98 * goal_Q  # these rows alone cannot balance the token
        elif not rows.real:
            done_Q |= balanced_Q  # to be expected of the real rows as well
        return done_Q

    def _leave(self, done_Q: NDArray[np.bool_]) -> None:
        """Go on without these columns."""
        if not done_Q.any():
            return
        self._remember(np.flatnonzero(done_Q))
        keep = np.flatnonzero(~done_Q)
        self.cases = self._at(keep)
        self._tried_Q, self._refused_Q = self._tried_Q[keep], self._refused_Q[keep]
        self.best_Q, self.best_KQ = self.best_Q[keep], self.best_KQ[:, keep]
        if self.cases:
            self.search.keep(keep)

    def drop_decided(self) -> None:
        """Go on without the cases that were decided elsewhere."""
        self._leave(np.array([case.verdict is not None for case in self.cases], dtype=bool))

    def _remember(self, columns: Iterable[int]) -> None:
        """Where the open cases stand, for a search over all rows to go on from."""
        if self.search.metric.rows.complete:
            for q in columns:
                if self.cases[q].verdict is None:
                    self.snapshots[self.cases[q].token] = self.search.snapshot(int(q))

    def _at(self, columns: Indices) -> list[Case]:
        return [self.cases[q] for q in columns]


def over_head(attempts: ProofAttempts, n: int, cases: list[Case]) -> LevelSearch:
    """A search over the n most probable rows."""
    factors = attempts.factors
    search = DouglasRachford(factors.white, factors.dist, factors.head(n), tokens_of(cases), attempts.slope)
    return LevelSearch(attempts, search, cases, _rejecting(attempts, search, factors.balance(n)))


def over_sample(
    attempts: ProofAttempts, n: int, cases: list[Case], known: Mapping[int, SearchSnapshot]
) -> LevelSearch:
    """A search over the n most probable rows and a sample of the others; a sample can only accept."""
    factors = attempts.factors
    metric = factors.sampled(n)
    search = DouglasRachford(factors.white, factors.dist, metric, tokens_of(cases), attempts.slope)
    _resume(search, cases, known)
    reject = _rejecting(attempts, search, factors.balance(n)) if metric.rows.real else None
    return LevelSearch(attempts, search, cases, reject)


def over_head_beside(
    attempts: ProofAttempts, n: int, most: int, cases: list[Case], known: Mapping[int, SearchSnapshot]
) -> LevelSearch:
    """A search over the n most probable rows, beside those that follow up to `most`, which are settled.

    Where each of these stands in its box is said by how far λ has travelled in the search before.
    """
    factors, slope = attempts.factors, attempts.slope
    white, dist, balance = factors.white, factors.dist, factors.balance(n)
    dist.extend(most)
    tokens_T, tokens_Q = dist.order_N[len(balance.tokens_N) : most], tokens_of(cases)
    travel_KQ = np.stack([known[case.token].travel_K for case in cases], axis=1)
    mass_T1 = (dist.p[tokens_T] * dist.kappa)[:, None]
    v_TQ = (white.X_VK.take(tokens_T, axis=0) @ travel_KQ) * np.maximum(mass_T1, 1.0)
    y_TQ = mass_T1 * np.clip(v_TQ, -1.0, slope)
    y_TQ[tokens_T[:, None] == tokens_Q] = 0
    tail = settle(white, tokens_T, y_TQ)
    glob_KQ = (white.basis_MK.T @ tail.sum_MQ).astype(np.float32)
    search = DouglasRachford(white, dist, factors.head(n), tokens_Q, slope, glob_KQ)
    _resume(search, cases, known)
    columns = {case.token: q for q, case in enumerate(cases)}

    def reject(cases: list[Case], at: Indices, how: str) -> None:
        settled = tail.keep(np.array([columns[case.token] for case in cases], dtype=np.intp))
        attempts.reject(cases, balance, search.multipliers(at), AIM * search.goal_Q[at], how, settled)

    return LevelSearch(attempts, search, cases, reject)


def over_all(attempts: ProofAttempts, cases: list[Case], known: Mapping[int, SearchSnapshot]) -> LevelSearch:
    """A search over all rows, from where others have come to."""
    factors = attempts.factors
    search = DouglasRachford(factors.white, factors.dist, factors.whole, tokens_of(cases), attempts.slope)
    _resume(search, cases, known)

    def reject(cases: list[Case], columns: Indices, how: str) -> None:
        for case, q in zip(cases, columns, strict=True):
            attempts.reject_whole(
                case, search.a_SQ[:, q].astype(np.float64), AIM * float(search.goal_Q[q]), how
            )

    return LevelSearch(attempts, search, cases, reject)


def _resume(search: DouglasRachford, cases: list[Case], known: Mapping[int, SearchSnapshot]) -> None:
    for q, case in enumerate(cases):
        if case.token in known:
            search.resume(q, known[case.token])


def _rejecting(attempts: ProofAttempts, search: DouglasRachford, balance: Balance) -> Reject:
    def reject(cases: list[Case], columns: Indices, how: str) -> None:
        attempts.reject(cases, balance, search.multipliers(columns), AIM * search.goal_Q[columns], how)

    return reject
