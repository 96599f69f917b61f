"""Prove acceptance: one λ is enough, evaluated in float64 on W itself with every rounding error counted.

    f(λ) = Σ_{j≠i} p̂ⱼ·max(c·sⱼ, −sⱼ) < p̂ᵢ,   s = W̃λ,  sᵢ = 1
    ⇒   no p with W̃ᵀp = W̃ᵀp̂ and 0 ≤ p ≤ (1+c)p̂ has pᵢ = 0

Proof: let p be such a distribution and y = p − p̂. Then Σⱼ yⱼsⱼ = 0, so p̂ᵢ = −yᵢsᵢ = Σ_{j≠i} yⱼsⱼ ≤ f(λ),
since −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ. This is the dual of the linear program of Finlayson et al. 2024, eq. 3: a weighted
quantile regression.
papers.bib: finlayson2024closing

Evaluated from the most probable tokens down, only as far as needed; the rows not looked at are bounded by
either of

    Σ_tail p̂ⱼ|sⱼ|  ≤  ‖λ‖·Σ_tail p̂ⱼ‖xⱼ‖          Σ_tail p̂ⱼ|sⱼ|  ≤  √(Σ_tail p̂ⱼ²)·√(V‖λ‖² − Σ_head sⱼ²)

(XᵀX = V·I). Rounding: a dot product of m terms errs by at most (m+4)·2⁻⁵²·‖w̃‖‖λ‖; the identity XᵀX = V·I
by at most m(10⁻¹² + m·10⁻¹⁵) of what its columns would give if they were parallel; a sum over the
vocabulary by 10⁻¹⁰ of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Array32, Indices
from unspool.basis.distribution import Distribution
from unspool.basis.lewis import Metric
from unspool.basis.whitening import Whitened

TIERS = (256, 1024, 4096)
SAMPLE = 192
SUMMING = 1e-10
# A pass over more numbers than this is worth predicting from a sample.
LARGE = 3_000_000


@dataclass(frozen=True, eq=False)
class Upper:
    """What is known of f(λ) for each of Q candidates."""

    proved_Q: NDArray[np.bool_]
    value_Q: Array
    """An upper bound of f where all was evaluated or bounded; infinite where the evaluation stopped early."""
    slopes_MQ: Array
    """The certificates: λ in the coordinates of W̃, with w̃ᵢ·λ = 1."""
    rows_Q: Indices
    """How many rows of W̃ were looked at."""


class Evaluator:
    """Evaluates f(λ) for tokens of one distribution; what they share is prepared once."""

    def __init__(self, white: Whitened, dist: Distribution) -> None:
        self.white = white
        self.dist = dist

    def upper(self, lam_KQ: Array, tokens_Q: Indices, slope: float, metric: Metric | None = None) -> Upper:
        """Bound f(λ) of each column for its token, as far as it takes to see whether f(λ) < p̂ᵢ.

        A metric's hard rows, if one is given, are put to s = 0 more exactly than its float32 did.
        """
        white, dist, steep = self.white, self.dist, max(1.0, slope)
        lam_KQ, slopes_MQ = self._normalised(lam_KQ, tokens_Q, metric)
        length_Q = np.sqrt(np.einsum("kq,kq->q", lam_KQ, lam_KQ))
        unit_Q = (
            (white.m + 4) * 2.0**-52 * white.row_norm * np.sqrt(np.einsum("mq,mq->q", slopes_MQ, slopes_MQ))
        )
        slack_Q = white.m * (1e-12 + white.m * 1e-15) * (white.column_M @ (slopes_MQ * slopes_MQ))
        total_Q = dist.vocabulary * (length_Q * length_Q + slack_Q)
        goal_Q, ranks_Q = dist.p[tokens_Q], dist.ranks(tokens_Q)
        value_Q, square_Q = steep * unit_Q, np.zeros(len(goal_Q))
        bound_Q, rows_Q, done = np.full(len(goal_Q), np.inf), np.zeros(len(goal_Q), dtype=np.intp), 0
        open_Q = np.isfinite(length_Q) & (unit_Q < 0.1)
        for n in TIERS:
            n, on = min(n, len(dist.order_N)), np.flatnonzero(open_Q)
            if n == done or not len(on):
                break
            for start in range(done, n, 1024):
                part = slice(start, min(start + 1024, n))
                s_NQ = white.project(slopes_MQ[:, on], dist.order_N[part])
                _forget(s_NQ, ranks_Q[on] - start)
                value_Q[on] += dist.head_N[part] @ np.maximum(slope * s_NQ, -s_NQ)
                square_Q[on] += np.einsum("nq,nq->q", s_NQ, s_NQ)
            done = rows_Q[on] = n
            tail_Q = np.minimum(
                self._reach_N[done] * length_Q,
                np.sqrt(dist.squares_N[done] * np.maximum(total_Q - square_Q * (1 - SUMMING), 0.0)),
            )
            now_Q = (value_Q + steep * tail_Q) * (1 + SUMMING + 2 * unit_Q)
            bound_Q[on] = np.minimum(bound_Q, now_Q)[on]
            open_Q &= (value_Q < goal_Q) & ~(bound_Q < goal_Q)
        open_Q &= self._promising(lam_KQ, tokens_Q, slope, value_Q, open_Q)
        on = np.flatnonzero(open_Q)
        if len(on):
            whole_Q = self._whole(slopes_MQ[:, on], tokens_Q[on], slope) + steep * unit_Q[on]
            bound_Q[on] = np.minimum(bound_Q[on], whole_Q * (1 + SUMMING + 2 * unit_Q[on]))
            rows_Q[on] = dist.vocabulary
        return Upper(bound_Q < goal_Q, bound_Q, slopes_MQ, rows_Q)

    @cached_property
    def _reach_N(self) -> Array:
        """Σ p̂ⱼ‖xⱼ‖ from each rank on; float32's rounding of ‖xⱼ‖ is less than the last factor."""
        share_V = self.dist.p * self.white.norm_V
        head_N = share_V[self.dist.order_N]
        share_V[self.dist.order_N] = 0
        rest = float(share_V.sum())
        return np.append(head_N[::-1].cumsum()[::-1] + rest, rest) * (1 + 1e-5)

    @cached_property
    def _sample(self) -> tuple[Indices, Array, Array32]:
        tokens_S, weight_S = self.dist.sample_beyond(len(self.dist.order_N), SAMPLE)
        return tokens_S, weight_S, self.white.X_VK[tokens_S]

    def _normalised(self, lam_KQ: Array, tokens_Q: Indices, metric: Metric | None) -> tuple[Array, Array]:
        """λ with w̃ᵢ·λ = 1, and s = 0 on the metric's hard rows, in both coordinates."""
        white, own_QM = self.white, self.white.rows(tokens_Q)
        if metric is not None and metric.hard:
            hard_H = self.dist.order_N[: metric.hard]
            target_HQ = (np.arange(metric.hard)[:, None] == self.dist.ranks(tokens_Q)).astype(np.float64)
        with np.errstate(all="ignore"):  # a λ orthogonal to its token becomes infinite, and is not used
            slopes_MQ = white.basis_MK @ lam_KQ
            scale_Q = 1 / np.einsum("qm,mq->q", own_QM, slopes_MQ)
            lam_KQ, slopes_MQ = lam_KQ * scale_Q, slopes_MQ * scale_Q
            if metric is not None and metric.hard:
                for _ in range(2):
                    miss_HQ = white.project(slopes_MQ, hard_H) - target_HQ
                    back_KQ = metric.solve_HK.T.astype(np.float64) @ miss_HQ
                    lam_KQ, slopes_MQ = lam_KQ - back_KQ, slopes_MQ - white.basis_MK @ back_KQ
                scale_Q = 1 / np.einsum("qm,mq->q", own_QM, slopes_MQ)
                lam_KQ, slopes_MQ = lam_KQ * scale_Q, slopes_MQ * scale_Q
        return lam_KQ, slopes_MQ

    def _promising(
        self, lam_KQ: Array, tokens_Q: Indices, slope: float, value_Q: Array, open_Q: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Whether a sample of the tail leaves hope: a pass over all rows is dear where d is large."""
        if self.white.X_VK.size < LARGE or not open_Q.any():
            return open_Q
        tokens_S, weight_S, X_SK = self._sample
        s_SQ = X_SK @ lam_KQ.astype(np.float32)
        s_SQ[tokens_S[:, None] == tokens_Q] = 0
        tail_Q = weight_S @ np.maximum(slope * s_SQ, -s_SQ)
        return np.asarray(value_Q + tail_Q < 1.02 * self.dist.p[tokens_Q])

    def _whole(self, slopes_MQ: Array, tokens_Q: Indices, slope: float) -> Array:
        """f(λ) over the whole vocabulary."""
        value_Q = np.zeros(len(tokens_Q))
        for part, block in self.white.weight.blocks():
            s_NQ = block @ slopes_MQ[:-1] + slopes_MQ[-1]
            _forget(s_NQ, tokens_Q - part.start)
            value_Q += self.dist.p[part] @ np.maximum(slope * s_NQ, -s_NQ)
        return value_Q


def _forget(s_NQ: Array, places_Q: Indices) -> None:
    """The candidate's own row is no part of its sum."""
    inside = np.flatnonzero((places_Q >= 0) & (places_Q < len(s_NQ)))
    s_NQ[places_Q[inside], inside] = 0
