"""Levels of the Douglas–Rachford search: over the head, the head and a tail sample, or all rows.

The iterates are tried as proofs while the search runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.douglas_rachford import TARGET_FACTOR, DouglasRachford, SearchSnapshot
from unspool.basis.solver.lewis_metric import LewisMetric
from unspool.basis.solver.proof_attempts import Candidate, ProofAttempts, candidate_tokens
from unspool.basis.solver.rejection_proof import FixedMultipliers, fix_multipliers
from unspool.basis.work import iteration_cost

# Proofs are tried every 1 + candidates // CANDIDATES_PER_STRIDE iterations.
CANDIDATES_PER_STRIDE = 4
# f(λ) over the rows of the search must be below this share of p̂ᵢ before it is evaluated on W.
TRY_ACCEPT_BELOW = 0.997


class LevelSearch:
    """One search for several candidates; decided ones, and those these rows cannot decide, are dropped.

    It resumes from `snapshots`. Rejections repair the multipliers of the `head` most probable rows; those of
    `tail` are fixed.
    """

    def __init__(
        self,
        attempts: ProofAttempts,
        metric: LewisMetric,
        candidates: list[Candidate],
        snapshots: Mapping[int, SearchSnapshot] | None = None,
        *,
        head: int = 0,
        tail: FixedMultipliers | None = None,
    ) -> None:
        self.attempts, self.candidates, self._head, self._tail = attempts, list(candidates), head, tail
        whitened, dist = attempts.factors.whitened, attempts.factors.dist
        glob_KQ = None if tail is None else (whitened.basis_MK.T @ tail.sum_MQ).astype(np.float32)
        self.search = DouglasRachford(
            whitened, dist, metric, candidate_tokens(candidates), attempts.slope, glob_KQ
        )
        for q, candidate in enumerate(candidates):
            if snapshots and candidate.token in snapshots:
                self.search.resume(q, snapshots[candidate.token])
        self._accept_tried_Q = np.full(len(candidates), np.inf)
        self._reject_tried_Q = np.full(len(candidates), np.inf)
        self.best_Q = np.full(len(candidates), np.inf)
        self.best_KQ = self.search.lam_KQ.copy()
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
                candidate.work += iteration_cost(rows, unknowns)
            upper_Q = self.search.upper_bounds()
            better = np.flatnonzero(upper_Q < self.best_Q)
            self.best_Q[better], self.best_KQ[:, better] = upper_Q[better], self.search.lam_KQ[:, better]
            if turn % stride == 0 or turn == iterations - 1:
                self._drop(self._try_proofs(upper_Q))
            self._drop(np.array([each.work > each.budget for each in self.candidates], dtype=bool))
        self._save_snapshots(range(len(self.candidates)))
        return self.candidates

    def _try_proofs(self, upper_Q: Array) -> NDArray[np.bool_]:
        """Try promising iterates as proofs; returns which columns are done."""
        search, rows = self.search, self.search.metric.rows
        method = "douglas-rachford" if self._iteration > 1 else "least squares"
        box_scale_Q, own_mass_Q = search.required_box_scale(), search.own_mass_Q
        balanced_Q = box_scale_Q <= 1
        if rows.is_unsampled:
            at = np.flatnonzero(balanced_Q & (box_scale_Q < 0.9995 * self._reject_tried_Q))
            self._reject_tried_Q[at] = box_scale_Q[at]
            self._try_reject(at, method)
        if rows.covers_vocabulary:
            undecided_Q = np.array([candidate.verdict is None for candidate in self.candidates])
            good_Q = (upper_Q < TRY_ACCEPT_BELOW * own_mass_Q) & (upper_Q < 0.99 * self._accept_tried_Q)
            at = np.flatnonzero(undecided_Q & good_Q)
            self._accept_tried_Q[at] = upper_Q[at]
            lam_KQ = search.lam_KQ[:, at].astype(np.float64)
            self.attempts.try_accept([self.candidates[q] for q in at], lam_KQ, method, search.metric)
        done_Q = np.array([candidate.verdict is not None for candidate in self.candidates])
        if not rows.covers_vocabulary:
            done_Q |= upper_Q < 0.98 * own_mass_Q  # these rows cannot balance the token
        elif not rows.is_unsampled:
            done_Q |= balanced_Q  # the actual rows probably balance it too
        return done_Q

    def _try_reject(self, columns: Indices, method: str) -> None:
        search, attempts = self.search, self.attempts
        if search.metric.rows.is_full:
            for q in columns:
                y_V, t = search.a_SQ[:, q].astype(np.float64), TARGET_FACTOR * float(search.own_mass_Q[q])
                attempts.try_reject_with_all_rows(self.candidates[q], y_V, t, method)
            return
        repair = attempts.factors.repair(self._head)
        columns = np.array([q for q in columns if self.candidates[q].spend(repair.cost)], dtype=np.intp)
        if len(columns):
            candidates, t_Q = (
                [self.candidates[q] for q in columns],
                TARGET_FACTOR * search.own_mass_Q[columns],
            )
            tail = None if self._tail is None else self._tail.keep_columns(columns)
            attempts.try_reject(candidates, repair, search.multipliers(columns), t_Q, method, tail)

    def _drop(self, done_Q: NDArray[np.bool_]) -> None:
        """Remove these columns from the search."""
        if not done_Q.any():
            return
        self._save_snapshots(np.flatnonzero(done_Q))
        kept = np.flatnonzero(~done_Q)
        self.candidates = [self.candidates[q] for q in kept]
        for name in ("_accept_tried_Q", "_reject_tried_Q", "best_Q", "best_KQ"):
            setattr(self, name, getattr(self, name)[..., kept])
        self._tail = None if self._tail is None else self._tail.keep_columns(kept)
        if self.candidates:
            self.search.keep_columns(kept)

    def drop_decided(self) -> None:
        self._drop(np.array([candidate.verdict is not None for candidate in self.candidates], dtype=bool))

    def _save_snapshots(self, columns: Iterable[int]) -> None:
        """Save the state of undecided candidates, so that a search over more rows can resume from it."""
        if self.search.metric.rows.covers_vocabulary:
            for q in columns:
                if self.candidates[q].verdict is None:
                    self.snapshots[self.candidates[q].token] = self.search.snapshot(int(q))


def fix_tail(
    attempts: ProofAttempts,
    n: int,
    n_rows: int,
    candidates: list[Candidate],
    snapshots: Mapping[int, SearchSnapshot],
) -> FixedMultipliers:
    """Fixed multipliers of the rows between the n and the `n_rows` most probable ones.

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
    return fix_multipliers(whitened, tokens_T, y_TQ)
