"""Candidates (tokens under test), the proofs tried for them, and the factors these proofs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.kappa_rule import typical_threshold
from unspool.basis.solver.acceptance_proof import Evaluator
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.lewis_metric import (
    LewisMetric,
    SearchRows,
    select_all,
    select_head,
    select_head_and_sample,
)
from unspool.basis.solver.rejection_proof import FixedMultipliers, MultiplierRepair, fix_multipliers
from unspool.basis.solver.whitening import WhitenedMatrix
from unspool.basis.theory import Acceptance, Rejection, Verdict, slope_from_tau
from unspool.basis.work import acceptance_cost, factorization_cost

# The fewest rows of a search level.
MIN_LEVEL_ROWS = 256


class SharedFactors:
    """Everything that the tests on one distribution share; each part is built when first needed."""

    def __init__(self, whitened: WhitenedMatrix, p_V: Array) -> None:
        self.whitened = whitened
        self.dist = Distribution(p_V, whitened.X_VK.shape[1])
        self.evaluator = Evaluator(whitened, self.dist)
        width = whitened.X_VK.shape[1]
        self.first_level_rows: int = min(
            max(MIN_LEVEL_ROWS, 1 << (2 * width).bit_length() - 1), self.dist.support
        )
        """Rows of the first level: about twice the number of unknowns."""
        self._heads: dict[int, LewisMetric] = {}
        self._selections: dict[int, SearchRows] = {}
        self._samples: dict[int, LewisMetric] = {}
        self._repairs: dict[int, MultiplierRepair] = {}

    @cached_property
    def least_squares(self) -> LeastSquares:
        return LeastSquares(self.whitened, self.dist)

    @cached_property
    def full_metric(self) -> LewisMetric:
        return LewisMetric(self.whitened, self.dist, select_all(self.whitened, self.dist))

    def head_metric(self, n: int) -> LewisMetric:
        if n not in self._heads:
            rows = select_head(self.whitened, self.dist, n)
            self._heads[n] = LewisMetric(self.whitened, self.dist, rows, self._largest_prefix(n))
        return self._heads[n]

    def sampled_metric(self, n: int) -> LewisMetric:
        """The metric of the n most probable rows and a sample of the others, at least as many."""
        if n not in self._samples:
            self._samples[n] = LewisMetric(
                self.whitened, self.dist, self.sampled_rows(n), self._largest_prefix(n)
            )
        return self._samples[n]

    def sampled_rows(self, n: int) -> SearchRows:
        if n not in self._selections:
            self._selections[n] = select_head_and_sample(
                self.whitened, self.dist, n, max(n, 2 * self.first_level_rows)
            )
        return self._selections[n]

    def repair(self, n: int) -> MultiplierRepair:
        if n not in self._repairs:
            self._repairs[n] = MultiplierRepair(self.whitened, self.dist, self.head_metric(n))
        return self._repairs[n]

    def _largest_prefix(self, n: int) -> LewisMetric | None:
        """The largest existing metric whose rows are among the n most probable."""
        return self._heads.get(max((k for k in self._heads if k <= n), default=0))


@dataclass(eq=False)
class Candidate:
    """A token under test, with the bracket low ≤ F_i(c) ≤ high proven so far."""

    token: int
    p_i: float
    """p̂ᵢ: the token is accepted if F_i(c) is less."""
    kappa_ratio: float
    """κp̂ᵢ/g(c); the κ rule predicts acceptance above 1."""
    low: float = 0.0
    high: float = inf
    is_likely_accepted: bool = False
    """The sampled rows did not balance the token, but no λ proved acceptance either."""
    budget: float = inf
    work: float = 0.0
    """Work spent so far, in the unit of work.py."""
    verdict: Verdict | None = None
    _paid_levels: set[int] = field(default_factory=set)

    def spend(self, work: float) -> bool:
        """Spend this work if the budget allows it; returns whether it did."""
        if self.work + work > self.budget:
            return False
        self.work += work
        return True

    def spend_on_level(self, rows: int, width: int, head_metric: int = 0) -> bool:
        """Spend the cost of factorising a search level once; a head that is already paid is free."""
        if rows in self._paid_levels:
            return True
        if not self.spend(factorization_cost(rows - head_metric * (head_metric in self._paid_levels), width)):
            return False
        self._paid_levels.add(rows)
        return True


class ProofAttempts:
    """Tries proofs for candidates that share a distribution and τ, and records verdicts."""

    def __init__(self, factors: SharedFactors, tokens: Indices, tau: float, budget: float = inf) -> None:
        self.factors, self.tau, self.slope = factors, tau, slope_from_tau(tau)
        p_V, kappa, width = factors.dist.p, factors.dist.kappa, factors.whitened.X_VK.shape[1]
        g = typical_threshold(width, self.slope)
        self.candidates = [
            Candidate(int(i), float(p_V[i]), float(p_V[i]) * kappa / g, budget=budget) for i in tokens
        ]

    def undecided(self, which: Callable[[Candidate], bool] = lambda _: True) -> list[Candidate]:
        return [candidate for candidate in self.candidates if candidate.verdict is None and which(candidate)]

    def try_accept(
        self, candidates: Sequence[Candidate], lam_KQ: Array, method: str, metric: LewisMetric | None = None
    ) -> None:
        """Try each candidate's λ; the hard rows of `metric` are re-projected to s = 0."""
        if not candidates:
            return
        bounds = self.factors.evaluator.bound(lam_KQ, candidate_tokens(candidates), self.slope, metric)
        for q, candidate in enumerate(candidates):
            candidate.high = min(candidate.high, float(bounds.value_Q[q]))
            candidate.work += acceptance_cost(int(bounds.rows_Q[q]), len(lam_KQ))
            if bounds.proved_Q[q]:
                self.record_verdict(
                    candidate, True, method, Acceptance(candidate.token, bounds.dual_MQ[:, q].copy())
                )

    def try_reject(
        self,
        candidates: Sequence[Candidate],
        repair: MultiplierRepair,
        y_NQ: Array,
        t_Q: Array,
        method: str,
        tail: FixedMultipliers | None = None,
    ) -> None:
        """Try each candidate's multipliers y of the head, Σ yⱼw̃ⱼ ≈ t·w̃ᵢ."""
        certificates, low_Q = repair.prove(y_NQ, t_Q, candidate_tokens(candidates), self.slope, tail)
        for candidate, certificate, low in zip(candidates, certificates, low_Q, strict=True):
            candidate.low = max(candidate.low, float(low))
            if certificate is not None:
                self.record_verdict(candidate, False, method, certificate)

    def try_reject_with_all_rows(self, candidate: Candidate, y_V: Array, t: float, method: str) -> None:
        """Try multipliers of the whole vocabulary; the head's are repaired, the others are fixed."""
        repair = self.factors.repair(min(4 * self.factors.first_level_rows, self.factors.dist.support))
        if not candidate.spend(repair.cost):
            return
        tail_V = y_V.copy()
        tail_V[repair.tokens_N] = 0
        tail_V[candidate.token] = 0
        tokens_T = np.flatnonzero(tail_V)
        tail = fix_multipliers(self.factors.whitened, tokens_T, tail_V[tokens_T, None])
        self.try_reject([candidate], repair, y_V[repair.tokens_N, None], np.array([t]), method, tail)

    def record_verdict(
        self, candidate: Candidate, accepted: bool, method: str, certificate: Acceptance | Rejection | None
    ) -> None:
        token, bracket = candidate.token, (candidate.low, candidate.high)
        candidate.verdict = Verdict(accepted, token, self.tau, method, certificate, *bracket, candidate.work)


def candidate_tokens(candidates: Sequence[Candidate]) -> Indices:
    return np.array([candidate.token for candidate in candidates], dtype=np.intp)
