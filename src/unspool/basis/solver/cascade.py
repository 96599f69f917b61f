"""Decide tokens of one distribution: try proofs from cheap to expensive and stop at the first one.

    threshold · least squares · Douglas–Rachford on n, 4n and all rows · interior point

The κ rule, accept ⇔ κp̂ᵢ ≥ 0.8·m^0.45·c^0.85 (c^0.4 if c > 1), predicts which side to try first; a wrong
prediction only costs time. A rejection needs multipliers of actual rows: of the head alone, or of the head
with the multipliers of thousands of tail rows fixed at the values of an earlier search. An acceptance needs
a λ that accounts for the whole vocabulary, so the head is searched with a sample that represents the tail;
the proof is then one pass over all rows.

The question: Finlayson et al. 2024, §4 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import inf

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.douglas_rachford import TARGET_FACTOR, DouglasRachford, SearchSnapshot
from unspool.basis.solver.interior_point import solve_reduced
from unspool.basis.solver.lewis_metric import MIN_MASS, LewisMetric
from unspool.basis.solver.proof_attempts import Candidate, ProofAttempts, SharedFactors, candidate_tokens
from unspool.basis.solver.rejection_proof import FixedMultipliers, fix_multipliers, verify_exactly
from unspool.basis.theory import Acceptance, Rejection, Verdict
from unspool.basis.work import iteration_cost, tail_setup_cost

# Proofs are tried every 1 + candidates // CANDIDATES_PER_STRIDE iterations.
CANDIDATES_PER_STRIDE = 4
# f(λ) over the rows of the search must be below this share of p̂ᵢ before it is evaluated on W.
TRY_ACCEPT_BELOW = 0.997


class LevelSearch:
    """One Douglas–Rachford search for several candidates; its iterates are tried as proofs.

    It runs over the head, the head and a tail sample, or all rows, and resumes from `snapshots`. Decided
    candidates, and those that these rows cannot decide, are dropped. Rejections repair the multipliers of the
    `head` most probable rows; those of `tail` are fixed.
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


BRACKET_TOLERANCE = 1e-6


def close_brackets(level: LevelSearch, free: int, hold_hard: bool) -> None:
    """Decide the candidates that a search over all rows left open, by `solve_reduced` with `free` free rows.

    `hold_hard` constrains hard tokens to s = 0. That improves the conditioning, and is correct unless c is so
    small that their box constraints are active.
    """
    attempts, search = level.attempts, level.search
    whitened, dist = attempts.factors.whitened, attempts.factors.dist
    hard_H, mass_V = dist.order_N[: search.metric.n_hard if hold_hard else 0], dist.p * dist.kappa
    mass_V[mass_V <= MIN_MASS] = 0
    for q, candidate in enumerate(level.candidates):
        p_i, lam_K = float(search.own_mass_Q[q]), level.best_KQ[:, q].astype(np.float64)
        own = float(search.x_KQ[:, q] @ lam_K)
        lam_K = lam_K / own if own > 0 else np.zeros_like(lam_K)
        problem = (whitened, hard_H, mass_V, candidate.token, attempts.slope)
        start = (lam_K, *search.box_sides(q, mass_V))
        for found_K, y_V, t in solve_reduced(*problem, *start, p_i, free, candidate.spend):
            if t > p_i:
                attempts.try_reject_with_all_rows(candidate, y_V, t, "interior point")
            if candidate.verdict is None:
                attempts.try_accept([candidate], found_K[:, None], "interior point")
            if candidate.verdict is not None or candidate.high * dist.kappa < t * (1 + BRACKET_TOLERANCE):
                break
    level.drop_decided()


# Splitting converges slowly for small c, so the interior-point method runs earlier.
SMALL_SLOPE = 0.1
# With fewer columns a factorisation is cheap compared with a pass over all rows, so it also runs earlier.
WIDE_ROWS = 256
# Rejections from a head with a fixed tail use at most this many rows.
MAX_TAIL_ROWS = 16384
# Duplicates of a candidate's row are looked for among this many most probable rows.
DUPLICATE_SEARCH_ROWS = 256


class Cascade:
    """Runs all stages for candidates that share a distribution and τ."""

    def __init__(self, factors: SharedFactors, tokens: Indices, tau: float, budget: float = inf) -> None:
        self.factors = factors
        self.attempts = ProofAttempts(factors, tokens, tau, budget)
        self._width = factors.whitened.X_VK.shape[1]
        self._snapshots: dict[int, SearchSnapshot] = {}

    def verdicts(self) -> list[Verdict]:
        """The verdicts in the order of the tokens."""
        n = self.factors.first_level_rows
        has_second_level = 4 * n < self.factors.dist.support
        self._apply_threshold()
        if self.factors.whitened.m > 1:
            self._try_least_squares(lambda candidate: candidate.kappa_ratio > 0.8)
            self._search_head(n, 8, lambda candidate: candidate.kappa_ratio < 1.25)
            if has_second_level:
                self._search_head(4 * n, 25, lambda candidate: candidate.kappa_ratio < 0.7)
            self._search_head_and_sample(n, 15)
            self._search_head_with_fixed_tail(
                n, MAX_TAIL_ROWS // 4, 8, lambda candidate: not candidate.is_likely_accepted
            )
            if has_second_level:
                self._search_head_and_sample(4 * n, 30)
                self._search_head_with_fixed_tail(4 * n, MAX_TAIL_ROWS, 30, lambda _: True)
            self._reject_by_duplicates()
            self._try_least_squares(lambda candidate: candidate.kappa_ratio <= 0.8)
            self._search_all_rows()
        for candidate in self.attempts.undecided():
            self.attempts.record_verdict(candidate, False, "undecided", None)
        return [candidate.verdict for candidate in self.attempts.candidates if candidate.verdict is not None]

    def _apply_threshold(self) -> None:
        """Accept p̂ᵢ > τ by the constant λ. At rank 0, y ∝ p̂ rejects all others."""
        whitened, dist = self.factors.whitened, self.factors.dist
        c = Fraction(self.attempts.tau) / (1 - Fraction(self.attempts.tau))
        for candidate in self.attempts.candidates:
            others = float(dist.tail_mass_N[1]) if candidate.p_i > 0.5 else 1 - candidate.p_i
            candidate.high = self.attempts.slope * others
            if candidate.high * (1 + 1e-12) < candidate.p_i:
                dual_M = np.zeros(whitened.m)
                dual_M[-1] = 1
                self.attempts.record_verdict(
                    candidate, True, "threshold", Acceptance(candidate.token, dual_M)
                )
            elif whitened.m == 1:
                rows_N = np.flatnonzero(dist.p)
                rows_N = rows_N[rows_N != candidate.token]
                proof = Rejection(candidate.token, rows_N, dist.p[rows_N] * (candidate.p_i / others))
                if candidate.high * (1 - 1e-12) > candidate.p_i or verify_exactly(proof, whitened, dist, c):
                    candidate.low = candidate.high
                    self.attempts.record_verdict(candidate, False, "threshold", proof)

    def _try_least_squares(self, which: Callable[[Candidate], bool]) -> None:
        candidates = self.attempts.undecided(which)
        if candidates and self.factors.least_squares.is_usable:
            lam_KQ = self.factors.least_squares.solve(candidate_tokens(candidates))
            self.attempts.try_accept(candidates, lam_KQ, "least squares")

    def _search_head(self, n: int, iterations: int, which: Callable[[Candidate], bool]) -> None:
        """Reject with multipliers of the n most probable rows."""
        candidates = self._within_budget(self.attempts.undecided(which), n)
        if candidates:
            LevelSearch(self.attempts, self.factors.head_metric(n), candidates, head=n).run(iterations)

    def _search_head_with_fixed_tail(
        self, n: int, n_rows: int, iterations: int, which: Callable[[Candidate], bool]
    ) -> None:
        """Reject with the n most probable rows; up to `n_rows` tail rows keep their last multipliers."""
        candidates = self.attempts.undecided(lambda each: which(each) and each.token in self._snapshots)
        n_rows = min(max(n_rows, 4 * n), self.factors.dist.support)
        setup = tail_setup_cost(n_rows, self._width)
        candidates = [candidate for candidate in self._within_budget(candidates, n) if candidate.spend(setup)]
        if candidates:
            tail = fix_tail(self.attempts, n, n_rows, candidates, self._snapshots)
            metric = self.factors.head_metric(n)
            LevelSearch(self.attempts, metric, candidates, self._snapshots, head=n, tail=tail).run(iterations)

    def _search_head_and_sample(self, n: int, iterations: int) -> None:
        """Accept by a λ over the head and a sample of the tail.

        Candidates that stay open here are likely to be accepted: the sampled rows could not balance them.
        """
        candidates = self.attempts.undecided()
        if candidates:
            candidates = self._within_budget(candidates, len(self.factors.sampled_rows(n).tokens_S), n)
        if candidates:
            metric = self.factors.sampled_metric(n)
            level = LevelSearch(self.attempts, metric, candidates, self._snapshots, head=n)
            remaining = level.run(iterations)
            self._snapshots |= level.snapshots
            for candidate in candidates:
                candidate.is_likely_accepted = candidate in remaining

    def _reject_by_duplicates(self) -> None:
        """Reject by tokens whose rows equal the candidate's: y ∝ p̂ balances it if their mass is ≥ p̂ᵢ/c."""
        candidates, whitened, dist = self.attempts.undecided(), self.factors.whitened, self.factors.dist
        if not candidates:
            return
        top_N = dist.order_N[:DUPLICATE_SEARCH_ROWS]
        rows_NM = whitened.rows(top_N)
        for candidate, own_M in zip(candidates, whitened.rows(candidate_tokens(candidates)), strict=True):
            duplicates = top_N[(rows_NM == own_M).all(axis=1) & (top_N != candidate.token)]
            weight = float(dist.p[duplicates].sum())
            candidate.low = max(candidate.low, self.attempts.slope * weight * (1 - 1e-12))
            if candidate.low > candidate.p_i:
                shift_N = dist.p[duplicates] * (candidate.p_i / weight)
                self.attempts.record_verdict(
                    candidate, False, "least squares", Rejection(candidate.token, duplicates, shift_N)
                )

    def _search_all_rows(self) -> None:
        """Alternate between a search over all rows and the interior-point method."""
        group = max(1, min(16, self._width // 32))  # wide rows gain more from matrix products
        candidates = self._within_budget(self.attempts.undecided(), self.factors.dist.vocabulary)
        for start in range(0, len(candidates), group):
            part, metric = candidates[start : start + group], self.factors.full_metric
            level = LevelSearch(self.attempts, metric, part, self._snapshots)
            free = max(2048, 4 * self._width)
            iterations = 6 if self._width < WIDE_ROWS else 10 if self.attempts.slope < SMALL_SLOPE else 30
            for hold_hard in (True, False, True, False):
                level.run(iterations)
                close_brackets(level, free, hold_hard)
                free, iterations = 2 * free, 20

    def _within_budget(self, candidates: list[Candidate], rows: int, head: int = 0) -> list[Candidate]:
        """The candidates whose budget covers a level of `rows` rows (`head` of them may be paid already)."""
        return [candidate for candidate in candidates if candidate.spend_on_level(rows, self._width, head)]
