"""The tokens under test and the proofs that are tried for them: what is proven is written down, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import inf
from time import perf_counter

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.kappa_rule import typical_threshold
from unspool.basis.solver.acceptance_proof import Evaluator
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.douglas_rachford import LeastSquares
from unspool.basis.solver.lewis_metric import Metric, Selection, everything, head, head_and_sample
from unspool.basis.solver.rejection_proof import Balance, Settled, settle
from unspool.basis.solver.whitening import Whitened
from unspool.basis.theory import slope_from_tau
from unspool.basis.verifier import Counterexample
from unspool.basis.work import accepting, factorising, rejecting, verifying

# What the tests on one distribution share, each part made when it is first needed.


# The fewest rows that are worth a level of the search.
FIRST = 256


class SharedFactors:
    """The distribution, sorted; the least-squares factor; the metrics of each level."""

    def __init__(self, white: Whitened, p_V: Array) -> None:
        self.white = white
        self.dist = Distribution(p_V, white.X_VK.shape[1])
        self.evaluator = Evaluator(white, self.dist)
        width = white.X_VK.shape[1]
        self.first: int = min(max(FIRST, 1 << (2 * width).bit_length() - 1), self.dist.support)
        """Rows of the first level: about twice as many as unknowns."""
        self._heads: dict[int, Metric] = {}
        self._selections: dict[int, Selection] = {}
        self._samples: dict[int, Metric] = {}
        self._balances: dict[int, Balance] = {}

    @cached_property
    def least_squares(self) -> LeastSquares:
        """The factor of the most probable rows."""
        return LeastSquares(self.white, self.dist)

    @cached_property
    def whole(self) -> Metric:
        """The metric of the whole vocabulary."""
        return Metric(self.white, self.dist, everything(self.white, self.dist))

    def head(self, n: int) -> Metric:
        """The metric of the n most probable rows."""
        if n not in self._heads:
            rows = head(self.white, self.dist, n)
            self._heads[n] = Metric(self.white, self.dist, rows, self._part(n))
        return self._heads[n]

    def sampled(self, n: int) -> Metric:
        """The metric of the n most probable rows and as many or more that stand for the others."""
        if n not in self._samples:
            self._samples[n] = Metric(self.white, self.dist, self.selection(n), self._part(n))
        return self._samples[n]

    def selection(self, n: int) -> Selection:
        """Its rows."""
        if n not in self._selections:
            self._selections[n] = head_and_sample(self.white, self.dist, n, max(n, 2 * self.first))
        return self._selections[n]

    def balance(self, n: int) -> Balance:
        """What makes multipliers exact on the n most probable rows."""
        if n not in self._balances:
            self._balances[n] = Balance(self.white, self.dist, self.head(n))
        return self._balances[n]

    def _part(self, n: int) -> Metric | None:
        """The largest metric that is there already and whose rows are among the n most probable."""
        return self._heads.get(max((k for k in self._heads if k <= n), default=0))


@dataclass(eq=False)
class Case:
    """One token under test."""

    token: int
    goal: float
    """p̂ᵢ: the token is accepted if F_i(c) is less."""
    guess: float
    """κp̂ᵢ/g(c): above 1 where acceptance is to be expected."""
    low: float = 0.0
    high: float = inf
    iterations: int = 0
    rows: int = 0
    leaning: bool = False
    """Towards acceptance: the sampled rows did not balance the token, but no λ was good enough either."""
    budget: float = inf
    work: float = 0.0
    """Spent so far: see work.py."""
    verdict: Verdict | None = None
    _levels: set[int] = field(default_factory=set)

    def spend(self, work: float) -> bool:
        """Whether the budget allows so much more work, which is then spent."""
        if self.work + work > self.budget:
            return False
        self.work += work
        return True

    def spend_on_level(self, rows: int, width: int, head: int = 0) -> bool:
        """The same for factorising a level of the search: paid for once, and its head not twice."""
        if rows in self._levels:
            return True
        if not self.spend(factorising(rows - head * (head in self._levels), width)):
            return False
        self._levels.add(rows)
        return True


class ProofAttempts:
    """Cases that share distribution and τ."""

    def __init__(self, factors: SharedFactors, tokens: Indices, tau: float, budget: float = inf) -> None:
        self.factors, self.tau, self.slope = factors, tau, slope_from_tau(tau)
        self._began = perf_counter()
        p_V, kappa, width = factors.dist.p, factors.dist.kappa, factors.white.X_VK.shape[1]
        g = typical_threshold(width, self.slope)
        self.cases = [Case(int(i), float(p_V[i]), float(p_V[i]) * kappa / g, budget=budget) for i in tokens]

    def open(self, which: Callable[[Case], bool] = lambda _: True) -> list[Case]:
        """The cases without a verdict."""
        return [case for case in self.cases if case.verdict is None and which(case)]

    def accept(self, cases: Sequence[Case], lam_KQ: Array, how: str, metric: Metric | None = None) -> None:
        """Try each case's λ; the metric it was found with says which rows it should have put to s = 0."""
        if not cases:
            return
        upper = self.factors.evaluator.upper(lam_KQ, tokens_of(cases), self.slope, metric)
        for q, case in enumerate(cases):
            case.high = min(case.high, float(upper.value_Q[q]))
            case.rows = max(case.rows, int(upper.rows_Q[q]))
            case.work += accepting(int(upper.rows_Q[q]), len(lam_KQ))
            if upper.proved_Q[q]:
                self.settle(case, True, how, Acceptance(case.token, upper.slopes_MQ[:, q].copy()))

    def reject(
        self,
        cases: Sequence[Case],
        balance: Balance,
        y_NQ: Array,
        t_Q: Array,
        how: str,
        tail: Settled | None = None,
    ) -> None:
        """Try each case's multipliers y of the head, balanced up to t."""
        if not cases:
            return
        cost = (rejecting if balance.metric.spans else verifying)(len(y_NQ), self.factors.white.X_VK.shape[1])
        at = [q for q, case in enumerate(cases) if case.spend(cost)]
        if not at:
            return
        if len(at) < len(cases):
            cases, tail = [cases[q] for q in at], None if tail is None else tail.keep(np.array(at))
            y_NQ, t_Q = y_NQ[:, at], t_Q[at]
        found, low_Q = balance.prove(y_NQ, t_Q, tokens_of(cases), self.slope, tail)
        for case, certificate, low in zip(cases, found, low_Q, strict=True):
            case.low = max(case.low, float(low))
            if certificate is not None:
                self.settle(case, False, how, certificate)

    def reject_whole(self, case: Case, y_V: Array, t: float, how: str) -> None:
        """Try multipliers of the whole vocabulary: those of the head are made exact, the others stay."""
        balance = self.factors.balance(min(4 * self.factors.first, self.factors.dist.support))
        tail_V = y_V.copy()
        tail_V[balance.tokens_N] = 0
        tail_V[case.token] = 0
        tokens_T = np.flatnonzero(tail_V)
        tail = settle(self.factors.white, tokens_T, tail_V[tokens_T, None])
        self.reject([case], balance, y_V[balance.tokens_N, None], np.array([t]), how, tail)

    def is_true(self, proof: Rejection) -> bool:
        """Whether a rejection holds in rational arithmetic: for those within rounding of not doing so."""
        c, white = Fraction(self.tau) / (1 - Fraction(self.tau)), self.factors.white
        return Counterexample(proof, white.weight, white.largest_M, self.factors.dist.p, c).exists()

    def settle(
        self, case: Case, accepted: bool, how: str, certificate: Acceptance | Rejection | None
    ) -> None:
        """Write the verdict down."""
        case.verdict = Verdict(
            accepted,
            case.token,
            self.tau,
            how,
            certificate,
            case.low,
            case.high,
            case.iterations,
            case.rows,
            perf_counter() - self._began,
            case.work,
        )


def tokens_of(cases: Sequence[Case]) -> Indices:
    """Their tokens."""
    return np.array([case.token for case in cases], dtype=np.intp)
