"""Prove acceptance: bound f(λ) from above for one λ, with all rounding errors included.

    f(λ) = Σ_{j≠i} p̂ⱼ·max(c·sⱼ, −sⱼ) < p̂ᵢ,   s = W̃λ,  sᵢ = 1
    ⇒   no p with W̃ᵀp = W̃ᵀp̂ and 0 ≤ p ≤ (1+c)p̂ has pᵢ = 0

Proof: let p be such a distribution and y = p − p̂. Then Σⱼ yⱼsⱼ = 0, so p̂ᵢ = −yᵢsᵢ = Σ_{j≠i} yⱼsⱼ ≤ f(λ),
since −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ. This is the dual of the linear program of Finlayson et al. 2024, eq. 3: a weighted
quantile regression (papers.bib: finlayson2024closing).

The sum starts at the most probable tokens and stops as soon as possible; the remaining rows are bounded by
the smaller of

    Σ_tail p̂ⱼ|sⱼ|  ≤  ‖λ‖·Σ_tail p̂ⱼ‖xⱼ‖          Σ_tail p̂ⱼ|sⱼ|  ≤  √(Σ_tail p̂ⱼ²)·√(V‖λ‖² − Σ_head sⱼ²)

(XᵀX = V·I). Rounding bounds: a dot product of m terms is off by at most (m+4)·2⁻⁵²·Σₘ|w̃ₘ||λₘ|, which is
bounded by ‖w̃‖‖λ‖ and by Σₘ max|w̃ₘ||λₘ|; the identity XᵀX = V·I by at most m(10⁻¹² + m·10⁻¹⁵) of the value
for parallel columns; a sum over the vocabulary by 10⁻¹⁰ of itself. The 256 most probable rows, where s must
often be almost zero, are evaluated on W in float64. The others are evaluated on X in float32, at half the
cost or less: each s is then off by at most (m+8)·2⁻²⁴·‖x‖‖λ‖, plus (m+4)·2⁻⁵⁰·|w̃||B|·‖λ‖ for the rounding
of B. If only this error prevents a proof, all rows are evaluated again on W in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Array32, Indices
from unspool.basis.kappa_rule import suffix_sums
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import LewisMetric
from unspool.basis.solver.whitening import WhitenedMatrix

HEAD_SIZES = (256, 1024, 4096)
SAMPLE_SIZE = 192
SUM_ERROR = 1e-10
# Before a pass over more numbers than this, a sample of the tail predicts whether it can succeed.
LARGE_PASS = 3_000_000
# Give up if the sample predicts more than this multiple of p̂ᵢ.
GIVE_UP_ABOVE = 1.02
BLOCK = 2048


class AcceptanceBounds:
    """Upper bounds on f(λ) for Q candidates; `Evaluator.bound` tightens them until they decide."""

    def __init__(self, evaluator: Evaluator, lam_KQ: Array, dual_MQ: Array, tokens_Q: Indices, slope: float):
        whitened, dist = evaluator.whitened, evaluator.dist
        self.lam_KQ, self.tokens_Q = lam_KQ, tokens_Q
        self.dual_MQ = dual_MQ
        """The certificates: λ in coordinates of W̃, with w̃ᵢ·λ = 1."""
        self.slope, self.max_slope = slope, max(1.0, slope)
        self.p_Q = dist.p[tokens_Q]
        self.length_Q: Array = np.sqrt(np.einsum("kq,kq->q", lam_KQ, lam_KQ))
        m, square_MQ = whitened.m, dual_MQ * dual_MQ
        slack_Q = m * (1e-12 + m * 1e-15) * (whitened.mean_square_M @ square_MQ)
        self.total_Q: Array = dist.vocabulary * (self.length_Q * self.length_Q + slack_Q)
        """An upper bound on Σⱼ sⱼ² over the vocabulary."""
        self.error64_Q: Array = (m + 4) * 2.0**-52 * whitened.abs_dot_bound(dual_MQ)
        """The error of s computed in float64 on W."""
        self.error32_Q: Array = (m + 8) * 2.0**-24 * self.length_Q
        """The error of s computed in float32 on X, relative to ‖xⱼ‖."""
        self.basis_error_Q: Array = (m + 4) * 2.0**-50 * whitened.basis_abs_bound * self.length_Q
        """The additional error from rounding B."""
        self.partial_Q: Array = self.max_slope * self.error64_Q
        """f(λ) over the rows evaluated so far."""
        self.value_Q: Array = np.full(len(tokens_Q), np.inf)
        """The best upper bound on f(λ) so far; infinite if the evaluation stopped early."""
        self.rows_Q: Indices = np.zeros(len(tokens_Q), dtype=np.intp)
        """The number of rows of W̃ evaluated."""
        self.open_Q: NDArray[np.bool_] = np.isfinite(self.length_Q) & (self.error64_Q < 0.1)
        """Neither proven nor given up."""

    @property
    def proved_Q(self) -> NDArray[np.bool_]:
        """f(λ) < p̂ᵢ."""
        return self.value_Q < self.p_Q

    def tighten(self, active: Indices, value_Q: Array) -> None:
        """Apply a new upper bound, enlarged by the rounding of sums and of w̃ᵢ·λ = 1."""
        bound_Q = value_Q * (1 + SUM_ERROR + 2 * self.error64_Q[active])
        self.value_Q[active] = np.minimum(self.value_Q[active], bound_Q)


class Evaluator:
    """Bounds f(λ) for tokens of one distribution."""

    def __init__(self, whitened: WhitenedMatrix, dist: Distribution) -> None:
        self.whitened, self.dist = whitened, dist
        self._cached_tail_norms_N: Array = np.empty(0)

    def bound(
        self, lam_KQ: Array, tokens_Q: Indices, slope: float, metric: LewisMetric | None = None
    ) -> AcceptanceBounds:
        """Bound f(λ) of each column for its token, until f(λ) < p̂ᵢ is proven or ruled out.

        The hard rows of `metric` are first re-projected to s = 0 in float64.
        """
        bounds = AcceptanceBounds(self, *self._normalize(lam_KQ, tokens_Q, metric), tokens_Q, slope)
        seen = self._evaluate_head(bounds)
        self._drop_hopeless(bounds, seen)
        self._evaluate_all(bounds, seen)
        return bounds

    def _evaluate_head(self, bounds: AcceptanceBounds) -> int:
        """Sum over growing heads and bound the tail; returns the number of rows evaluated."""
        dist, seen = self.dist, 0
        ranks_Q, square_Q = dist.ranks(bounds.tokens_Q), np.zeros(len(bounds.p_Q))
        for n in HEAD_SIZES:
            n, active = min(n, dist.support), bounds.open_Q.nonzero()[0]
            if n == seen or not len(active):
                break
            dist.extend_head(n)
            tokens_N = dist.order_N[seen:n]
            if seen:
                lam32_KQ = bounds.lam_KQ[:, active].astype(np.float32)
                s_NQ = (self.whitened.X_VK.take(tokens_N, axis=0) @ lam32_KQ).astype(np.float64)
            else:
                s_NQ = self.whitened.project(bounds.dual_MQ[:, active], tokens_N)
            _zero_own_rows(s_NQ, ranks_Q[active] - seen)
            bounds.partial_Q[active] += dist.head_N[seen:n] @ np.maximum(bounds.slope * s_NQ, -s_NQ)
            square_Q[active] += np.einsum("nq,nq->q", s_NQ, s_NQ)
            error_Q = self._float32_error(bounds, seen) if seen else np.zeros(len(square_Q))
            seen = bounds.rows_Q[active] = n
            tail_Q = bounds.max_slope * self._tail(bounds, square_Q, n)
            bounds.tighten(active, (bounds.partial_Q + error_Q + tail_Q)[active])
            bounds.open_Q &= (bounds.partial_Q - error_Q < bounds.p_Q) & ~bounds.proved_Q
        return int(seen)

    def _evaluate_all(self, bounds: AcceptanceBounds, seen: int) -> None:
        """Sum over all rows in float32, and in float64 for candidates that only float32 error leaves open."""
        active = bounds.open_Q.nonzero()[0]
        if not len(active):
            return
        bounds.rows_Q[active] = self.dist.vocabulary
        p_V, X_VK = self.dist.p.copy(), self.whitened.X_VK
        p_V[self.dist.order_N[:seen]] = 0
        lam32_KQ = bounds.lam_KQ[:, active].astype(np.float32)
        blocks = (
            (slice(start, start + BLOCK), X_VK[start : start + BLOCK] @ lam32_KQ)
            for start in range(0, len(p_V), BLOCK)
        )
        beyond_Q = _sum_blocks(p_V, blocks, bounds.tokens_Q[active], np.float32(bounds.slope))
        total_Q, error_Q = bounds.partial_Q[active] + beyond_Q, self._float32_error(bounds, seen)[active]
        bounds.tighten(active, total_Q + error_Q)
        active = active[~bounds.proved_Q[active] & (total_Q - error_Q < bounds.p_Q[active])]
        if len(active):
            dual_MQ = bounds.dual_MQ[:, active]
            blocks = (
                (part, block @ dual_MQ[:-1] + dual_MQ[-1]) for part, block in self.whitened.weight.blocks()
            )
            total_Q = _sum_blocks(self.dist.p, blocks, bounds.tokens_Q[active], bounds.slope)
            bounds.tighten(active, total_Q + bounds.max_slope * bounds.error64_Q[active])

    def _float32_error(self, bounds: AcceptanceBounds, seen: int) -> Array:
        """The float32 error of f(λ); the first rows were summed in float64."""
        norms = float(self._tail_norms_N[min(HEAD_SIZES[0], seen)])
        return bounds.max_slope * (bounds.error32_Q * norms + bounds.basis_error_Q)

    def _tail(self, bounds: AcceptanceBounds, square_Q: Array, n: int) -> Array:
        """An upper bound on Σ p̂ⱼ|sⱼ| from rank n on, allowing for float32 error in the head's squares."""
        max_total_Q = np.sqrt(bounds.total_Q)
        error_Q = bounds.error32_Q * np.sqrt(self.whitened.m * self.dist.vocabulary)
        error_Q = error_Q + np.sqrt(n) * bounds.basis_error_Q
        min_head_Q = np.maximum(np.sqrt(square_Q) * (1 - SUM_ERROR) - error_Q * (n > HEAD_SIZES[0]), 0.0)
        rest_Q = np.maximum(max_total_Q * max_total_Q - min_head_Q * min_head_Q, 0.0)
        tail_Q: Array = np.minimum(
            self._tail_norms_N[n] * bounds.length_Q, np.sqrt(self.dist.tail_squares_N[n] * rest_Q)
        )
        return tail_Q

    @property
    def _tail_norms_N(self) -> Array:
        """Σ p̂ⱼ‖xⱼ‖ from each rank on, enlarged by more than the float32 rounding of ‖xⱼ‖."""
        dist, norm_V = self.dist, self.whitened.norm_V
        if len(self._cached_tail_norms_N) != len(dist.order_N) + 1:
            sums_N = suffix_sums(dist.head_N * norm_V[dist.order_N], float(dist.tail_V @ norm_V))
            self._cached_tail_norms_N = sums_N * (1 + 1e-5)
        return self._cached_tail_norms_N

    @cached_property
    def _sample(self) -> tuple[Indices, Array, Array32]:
        tokens_S, weight_S = self.dist.sample_tail(min(HEAD_SIZES[-1], self.dist.support), SAMPLE_SIZE)
        return tokens_S, weight_S, self.whitened.X_VK[tokens_S]

    def _normalize(self, lam_KQ: Array, tokens_Q: Indices, metric: LewisMetric | None) -> tuple[Array, Array]:
        """λ with w̃ᵢ·λ = 1 and s = 0 on the metric's hard rows, in both coordinate systems."""
        whitened, own_QM = self.whitened, self.whitened.rows(tokens_Q)
        if metric is not None and metric.n_hard:
            hard_H = self.dist.order_N[: metric.n_hard]
            target_HQ = (np.arange(metric.n_hard)[:, None] == self.dist.ranks(tokens_Q)).astype(np.float64)
        with np.errstate(all="ignore"):  # a λ orthogonal to its token becomes infinite and is ignored
            dual_MQ = whitened.basis_MK @ lam_KQ
            scale_Q = 1 / np.einsum("qm,mq->q", own_QM, dual_MQ)
            lam_KQ, dual_MQ = lam_KQ * scale_Q, dual_MQ * scale_Q
            if metric is not None and metric.n_hard:
                for _ in range(2):
                    miss_HQ = whitened.project(dual_MQ, hard_H) - target_HQ
                    back_KQ = metric.solve_HK.T.astype(np.float64) @ miss_HQ
                    lam_KQ, dual_MQ = lam_KQ - back_KQ, dual_MQ - whitened.basis_MK @ back_KQ
                scale_Q = 1 / np.einsum("qm,mq->q", own_QM, dual_MQ)
                lam_KQ, dual_MQ = lam_KQ * scale_Q, dual_MQ * scale_Q
        return lam_KQ, dual_MQ

    def _drop_hopeless(self, bounds: AcceptanceBounds, seen: int) -> None:
        """Drop candidates for which a tail sample predicts that a pass over all rows will fail."""
        if self.whitened.X_VK.size < LARGE_PASS or not bounds.open_Q.any() or seen < HEAD_SIZES[-1]:
            return
        tokens_S, weight_S, X_SK = self._sample
        s_SQ = X_SK @ bounds.lam_KQ.astype(np.float32)
        s_SQ[tokens_S[:, None] == bounds.tokens_Q] = 0
        tail_Q = weight_S @ np.maximum(bounds.slope * s_SQ, -s_SQ)
        bounds.open_Q &= bounds.partial_Q + tail_Q < GIVE_UP_ABOVE * bounds.p_Q


def _sum_blocks(p_V: Array, blocks: Iterable[tuple[slice, Any]], tokens_Q: Indices, slope: Any) -> Array:
    """f(λ) over blocks of rows, each a slice of the vocabulary with its s."""
    value_Q = np.zeros(len(tokens_Q))
    for part, s_NQ in blocks:
        _zero_own_rows(s_NQ, tokens_Q - part.start)
        value_Q += p_V[part] @ np.maximum(slope * s_NQ, -s_NQ)
    return value_Q


def _zero_own_rows(s_NQ: Array | Array32, places_Q: Indices) -> None:
    """Set s = 0 for each candidate's own row, which is not part of its sum."""
    if len(places_Q) == 1:  # the common case; array indexing would cost more than the work
        place = int(places_Q[0])
        if 0 <= place < len(s_NQ):
            s_NQ[place] = 0
        return
    inside = ((places_Q >= 0) & (places_Q < len(s_NQ))).nonzero()[0]
    s_NQ[places_Q[inside], inside] = 0
