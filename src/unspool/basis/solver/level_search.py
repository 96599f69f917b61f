"""Levels of the Douglas–Rachford search: over the head, the head and a tail sample, or all rows.

The iterates are tried as proofs while the search runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.douglas_rachford import TARGET_FACTOR, DouglasRachford, SearchSnapshot
from unspool.basis.solver.proof_attempts import Candidate, ProofAttempts, candidate_tokens
from unspool.basis.solver.rejection_proof import MultiplierRepair, fix_multipliers
from unspool.basis.work import iteration_cost

# Proofs are tried every 1 + candidates // CANDIDATES_PER_STRIDE iterations.
CANDIDATES_PER_STRIDE = 4
# f(λ) over the rows of the search must be below this share of p̂ᵢ before it is evaluated on W.
TRY_ACCEPT_BELOW = 0.997

TryReject = Callable[[list[Candidate], Indices, str], None]


class LevelSearch:
    """One search for several candidates; decided ones, and those these rows cannot decide, are dropped."""

    def __init__(
        self,
        attempts: ProofAttempts,
        search: DouglasRachford,
        candidates: list[Candidate],
        try_reject: TryReject | None,
    ) -> None:
        self.attempts, self.search, self.candidates, self._try_reject = (
            attempts,
            search,
            list(candidates),
            try_reject,
        )
        self._accept_tried_Q = np.full(len(candidates), np.inf)
        self._reject_tried_Q = np.full(len(candidates), np.inf)
        self.best_Q = np.full(len(candidates), np.inf)
        self.best_KQ = search.lam_KQ.copy()
        self.snapshots: dict[int, SearchSnapshot] = {}
        self._iteration = 0

    def run(self, iterations: int) -> list[Candidate]:
        """Iterate; returns the candidates for which more iterations might help."""
        stride = 1 + len(self.candidates) // CANDIDATES_PER_STRIDE
        rows, unknowns = self.search.metric.rows.X_SK.shape
        for turn in range(iterations):
            if not self.candidates:
                break
            self.search.iterate()
            self._iteration += 1
            for candidate in self.candidates:
                candidate.iterations += 1
                candidate.work += iteration_cost(rows, unknowns)
                candidate.rows = max(
                    candidate.rows, self.search.metric.n_hard + len(self.search.metric.rows.tokens_S)
                )
            upper_Q = self.search.upper_bounds()
            better = np.flatnonzero(upper_Q < self.best_Q)
            self.best_Q[better], self.best_KQ[:, better] = upper_Q[better], self.search.lam_KQ[:, better]
            if turn % stride == 0 or turn == iterations - 1:
                self._drop(self._try_proofs(upper_Q))
            self._drop(
                np.array([candidate.work > candidate.budget for candidate in self.candidates], dtype=bool)
            )
        self._save_snapshots(range(len(self.candidates)))
        return self.candidates

    def _try_proofs(self, upper_Q: Array) -> NDArray[np.bool_]:
        """Try promising iterates as proofs; returns which columns are done."""
        search, rows = self.search, self.search.metric.rows
        method = "douglas-rachford" if self._iteration > 1 else "least squares"
        box_scale_Q, own_mass_Q = search.required_box_scale(), search.own_mass_Q
        balanced_Q = box_scale_Q <= 1
        if self._try_reject is not None:
            at = np.flatnonzero(balanced_Q & (box_scale_Q < 0.9995 * self._reject_tried_Q))
            self._reject_tried_Q[at] = box_scale_Q[at]
            self._try_reject(self._candidates_at(at), at, method)
        if rows.covers_vocabulary:
            undecided_Q = np.array([candidate.verdict is None for candidate in self.candidates])
            good_Q = (upper_Q < TRY_ACCEPT_BELOW * own_mass_Q) & (upper_Q < 0.99 * self._accept_tried_Q)
            at = np.flatnonzero(undecided_Q & good_Q)
            self._accept_tried_Q[at] = upper_Q[at]
            self.attempts.try_accept(
                self._candidates_at(at), search.lam_KQ[:, at].astype(np.float64), method, search.metric
            )
        done_Q = np.array([candidate.verdict is not None for candidate in self.candidates])
        if not rows.covers_vocabulary:
            done_Q |= upper_Q < 0.98 * own_mass_Q  # these rows cannot balance the token
        elif not rows.is_unsampled:
            done_Q |= balanced_Q  # the actual rows probably balance it too
        return done_Q

    def _drop(self, done_Q: NDArray[np.bool_]) -> None:
        """Remove these columns from the search."""
        if not done_Q.any():
            return
        self._save_snapshots(np.flatnonzero(done_Q))
        keep_columns = np.flatnonzero(~done_Q)
        self.candidates = self._candidates_at(keep_columns)
        self._accept_tried_Q, self._reject_tried_Q = (
            self._accept_tried_Q[keep_columns],
            self._reject_tried_Q[keep_columns],
        )
        self.best_Q, self.best_KQ = self.best_Q[keep_columns], self.best_KQ[:, keep_columns]
        if self.candidates:
            self.search.keep_columns(keep_columns)

    def drop_decided(self) -> None:
        """Remove the candidates that another method decided."""
        self._drop(np.array([candidate.verdict is not None for candidate in self.candidates], dtype=bool))

    def _save_snapshots(self, columns: Iterable[int]) -> None:
        """Save the state of undecided candidates, so that a search over more rows can resume from it."""
        if self.search.metric.rows.covers_vocabulary:
            for q in columns:
                if self.candidates[q].verdict is None:
                    self.snapshots[self.candidates[q].token] = self.search.snapshot(int(q))

    def _candidates_at(self, columns: Indices) -> list[Candidate]:
        return [self.candidates[q] for q in columns]


def search_head(attempts: ProofAttempts, n: int, candidates: list[Candidate]) -> LevelSearch:
    """A search over the n most probable rows."""
    factors = attempts.factors
    search = DouglasRachford(
        factors.whitened, factors.dist, factors.head_metric(n), candidate_tokens(candidates), attempts.slope
    )
    return LevelSearch(attempts, search, candidates, _reject_with_head(attempts, search, factors.repair(n)))


def search_head_and_sample(
    attempts: ProofAttempts, n: int, candidates: list[Candidate], snapshots: Mapping[int, SearchSnapshot]
) -> LevelSearch:
    """A search over the n most probable rows and a sample of the others, which can only prove acceptance."""
    factors = attempts.factors
    metric = factors.sampled_metric(n)
    search = DouglasRachford(
        factors.whitened, factors.dist, metric, candidate_tokens(candidates), attempts.slope
    )
    _resume_from(search, candidates, snapshots)
    try_reject = _reject_with_head(attempts, search, factors.repair(n)) if metric.rows.is_unsampled else None
    return LevelSearch(attempts, search, candidates, try_reject)


def search_head_with_fixed_tail(
    attempts: ProofAttempts,
    n: int,
    n_rows: int,
    candidates: list[Candidate],
    snapshots: Mapping[int, SearchSnapshot],
) -> LevelSearch:
    """A search over the n most probable rows, with the multipliers of the next rows up to `n_rows` fixed.

    Their values follow from the sum of λ over the previous search: v = ω·x·Σλ, clipped to the box.
    """
    factors, slope = attempts.factors, attempts.slope
    whitened, dist, repair = factors.whitened, factors.dist, factors.repair(n)
    dist.extend_head(n_rows)
    tokens_T, tokens_Q = dist.order_N[len(repair.tokens_N) : n_rows], candidate_tokens(candidates)
    lam_sum_KQ = np.stack([snapshots[candidate.token].lam_sum_K for candidate in candidates], axis=1)
    mass_T1 = (dist.p[tokens_T] * dist.kappa)[:, None]
    v_TQ = (whitened.X_VK.take(tokens_T, axis=0) @ lam_sum_KQ) * np.maximum(mass_T1, 1.0)
    y_TQ = mass_T1 * np.clip(v_TQ, -1.0, slope)
    y_TQ[tokens_T[:, None] == tokens_Q] = 0
    tail = fix_multipliers(whitened, tokens_T, y_TQ)
    glob_KQ = (whitened.basis_MK.T @ tail.sum_MQ).astype(np.float32)
    search = DouglasRachford(whitened, dist, factors.head_metric(n), tokens_Q, slope, glob_KQ)
    _resume_from(search, candidates, snapshots)
    columns = {candidate.token: q for q, candidate in enumerate(candidates)}

    def try_reject(candidates: list[Candidate], at: Indices, method: str) -> None:
        fixed = tail.keep_columns(
            np.array([columns[candidate.token] for candidate in candidates], dtype=np.intp)
        )
        attempts.try_reject(
            candidates, repair, search.multipliers(at), TARGET_FACTOR * search.own_mass_Q[at], method, fixed
        )

    return LevelSearch(attempts, search, candidates, try_reject)


def search_all_rows(
    attempts: ProofAttempts, candidates: list[Candidate], snapshots: Mapping[int, SearchSnapshot]
) -> LevelSearch:
    """A search over all rows that resumes from snapshots."""
    factors = attempts.factors
    search = DouglasRachford(
        factors.whitened, factors.dist, factors.full_metric, candidate_tokens(candidates), attempts.slope
    )
    _resume_from(search, candidates, snapshots)

    def try_reject(candidates: list[Candidate], columns: Indices, method: str) -> None:
        for candidate, q in zip(candidates, columns, strict=True):
            attempts.try_reject_with_all_rows(
                candidate,
                search.a_SQ[:, q].astype(np.float64),
                TARGET_FACTOR * float(search.own_mass_Q[q]),
                method,
            )

    return LevelSearch(attempts, search, candidates, try_reject)


def _resume_from(
    search: DouglasRachford, candidates: list[Candidate], snapshots: Mapping[int, SearchSnapshot]
) -> None:
    for q, candidate in enumerate(candidates):
        if candidate.token in snapshots:
            search.resume(q, snapshots[candidate.token])


def _reject_with_head(
    attempts: ProofAttempts, search: DouglasRachford, repair: MultiplierRepair
) -> TryReject:
    def try_reject(candidates: list[Candidate], columns: Indices, method: str) -> None:
        attempts.try_reject(
            candidates,
            repair,
            search.multipliers(columns),
            TARGET_FACTOR * search.own_mass_Q[columns],
            method,
        )

    return try_reject
