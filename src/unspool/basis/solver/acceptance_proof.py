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

(XᵀX = V·I). Rounding: a dot product of m terms errs by at most (m+4)·2⁻⁵²·Σₘ|w̃ₘ||λₘ|, which is bounded by
‖w̃‖‖λ‖ and, whatever the units of the columns, by Σₘ max|w̃ₘ||λₘ|; the identity XᵀX = V·I
by at most m(10⁻¹² + m·10⁻¹⁵) of what its columns would give if they were parallel; a sum over the
vocabulary by 10⁻¹⁰ of itself. The 256 most probable rows, where s must often be next to nothing, are
evaluated on W in float64. The others are evaluated on X in float32, at half the cost or less: each s then
errs by at most (m+8)·2⁻²⁴·‖x‖‖λ‖, and by what B's rounding makes, (m+4)·2⁻⁵⁰·|w̃||B|·‖λ‖. Where this
alone stands between λ and its proof, all is evaluated again on W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Array32, Indices
from unspool.basis.kappa_rule import from_each_rank_on
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import Metric
from unspool.basis.solver.whitening import Whitened

TIERS = (256, 1024, 4096)
SAMPLE = 192
SUMMING = 1e-10
# A pass over more numbers than this is worth predicting from a sample.
LARGE = 3_000_000
# A sample that says so much more than p̂ᵢ is believed.
HOPE = 1.02
BLOCK = 2048


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


@dataclass(frozen=True, eq=False)
class _Sizes:
    """What bounds the terms of f(λ) and their rounding, for each of Q candidates."""

    length_Q: Array
    """‖λ‖"""
    total_Q: Array
    """Σⱼ sⱼ² over the vocabulary, at most."""
    unit_Q: Array
    """The error of an s computed in float64 on W."""
    single_Q: Array
    """The error of an s computed in float32 on X, relative to ‖xⱼ‖ …"""
    basis_Q: Array
    """… and what B's rounding adds to it."""


class _Trial:
    """Q candidates while f(λ) is summed: what is known of each so far."""

    def __init__(
        self, lam_KQ: Array, slopes_MQ: Array, tokens_Q: Indices, slope: float, goal_Q: Array, size: _Sizes
    ) -> None:
        self.lam_KQ, self.slopes_MQ, self.tokens_Q = lam_KQ, slopes_MQ, tokens_Q
        self.slope, self.steep = slope, max(1.0, slope)
        self.goal_Q, self.size = goal_Q, size
        self.value_Q: Array = self.steep * size.unit_Q
        """f(λ) over the rows seen, as summed."""
        self.bound_Q: Array = np.full(len(goal_Q), np.inf)
        """The least upper bound of f(λ)."""
        self.rows_Q: Indices = np.zeros(len(goal_Q), dtype=np.intp)
        self.open_Q: NDArray[np.bool_] = np.isfinite(size.length_Q) & (size.unit_Q < 0.1)
        """Neither proven nor hopeless."""

    def tighten(self, on: Indices, value_Q: Array) -> None:
        """A new upper bound for some candidates, but for the rounding of sums and of w̃ᵢ·λ = 1."""
        bound_Q = value_Q * (1 + SUMMING + 2 * self.size.unit_Q[on])
        self.bound_Q[on] = np.minimum(self.bound_Q[on], bound_Q)


class Evaluator:
    """Evaluates f(λ) for tokens of one distribution; what they share is prepared once."""

    def __init__(self, white: Whitened, dist: Distribution) -> None:
        self.white = white
        self.dist = dist
        self._reached_N: Array = np.empty(0)

    def upper(self, lam_KQ: Array, tokens_Q: Indices, slope: float, metric: Metric | None = None) -> Upper:
        """Bound f(λ) of each column for its token, as far as it takes to see whether f(λ) < p̂ᵢ.

        A metric's hard rows, if one is given, are put to s = 0 more exactly than its float32 did.
        """
        lam_KQ, slopes_MQ = self._normalised(lam_KQ, tokens_Q, metric)
        trial = _Trial(
            lam_KQ, slopes_MQ, tokens_Q, slope, self.dist.p[tokens_Q], self._sizes(lam_KQ, slopes_MQ)
        )
        seen = self._try_head(trial)
        self._give_up(trial, seen)
        blurred = self._try_all(trial, seen)
        self._try_all_exactly(trial, blurred)
        return Upper(trial.bound_Q < trial.goal_Q, trial.bound_Q, slopes_MQ, trial.rows_Q)

    def _try_head(self, trial: _Trial) -> int:
        """Look at the most probable rows, more and more of them, and bound the others; how many were seen."""
        dist, size, seen = self.dist, trial.size, 0
        ranks_Q, square_Q = dist.ranks(trial.tokens_Q), np.zeros(len(trial.goal_Q))
        for n in TIERS:
            n, on = min(n, dist.support), trial.open_Q.nonzero()[0]
            if n == seen or not len(on):
                break
            dist.extend(n)
            s_NQ = self._s(trial.lam_KQ[:, on], trial.slopes_MQ[:, on], dist.order_N[seen:n], exact=seen == 0)
            _forget(s_NQ, ranks_Q[on] - seen)
            trial.value_Q[on] += dist.head_N[seen:n] @ np.maximum(trial.slope * s_NQ, -s_NQ)
            square_Q[on] += np.einsum("nq,nq->q", s_NQ, s_NQ)
            blur_Q = self._blur(trial, seen) if seen else np.zeros(len(square_Q))
            seen = trial.rows_Q[on] = n
            tail_Q = trial.steep * self._tail(size, square_Q, n)
            trial.tighten(on, (trial.value_Q + blur_Q + tail_Q)[on])
            trial.open_Q &= (trial.value_Q - blur_Q < trial.goal_Q) & ~(trial.bound_Q < trial.goal_Q)
        return int(seen)

    def _try_all(self, trial: _Trial, seen: int) -> Indices:
        """Look at all rows, in float32; the candidates that only its rounding keeps from their proof."""
        on = trial.open_Q.nonzero()[0]
        if not len(on):
            return on
        trial.rows_Q[on] = self.dist.vocabulary
        beyond_Q = self._beyond(trial.lam_KQ[:, on], trial.tokens_Q[on], trial.slope, seen)
        whole_Q, blur_Q = trial.value_Q[on] + beyond_Q, self._blur(trial, seen)[on]
        trial.tighten(on, whole_Q + blur_Q)
        return on[(trial.bound_Q[on] >= trial.goal_Q[on]) & (whole_Q - blur_Q < trial.goal_Q[on])]

    def _try_all_exactly(self, trial: _Trial, on: Indices) -> None:
        """Look at all rows of W itself, in float64."""
        if len(on):
            whole_Q = self._whole(trial.slopes_MQ[:, on], trial.tokens_Q[on], trial.slope)
            trial.tighten(on, whole_Q + trial.steep * trial.size.unit_Q[on])

    def _blur(self, trial: _Trial, seen: int) -> Array:
        """By how much float32 may have moved f(λ), of which the first rows were summed in float64."""
        size = trial.size
        blur_Q: Array = trial.steep * (size.single_Q * self._reach_N[min(TIERS[0], seen)] + size.basis_Q)
        return blur_Q

    def _sizes(self, lam_KQ: Array, slopes_MQ: Array) -> _Sizes:
        white = self.white
        length_Q = np.sqrt(np.einsum("kq,kq->q", lam_KQ, lam_KQ))
        square_MQ = slopes_MQ * slopes_MQ
        unit_Q = (white.m + 4) * 2.0**-52 * white.reach(slopes_MQ)
        slack_Q = white.m * (1e-12 + white.m * 1e-15) * (white.column_M @ square_MQ)
        return _Sizes(
            length_Q,
            self.dist.vocabulary * (length_Q * length_Q + slack_Q),
            unit_Q,
            (white.m + 8) * 2.0**-24 * length_Q,
            (white.m + 4) * 2.0**-50 * white.basis_reach * length_Q,
        )

    def _s(self, lam_KQ: Array, slopes_MQ: Array, tokens_N: Indices, exact: bool) -> Array:
        """s of these rows, from W in float64 or from X in float32."""
        if exact:
            return self.white.project(slopes_MQ, tokens_N)
        s_NQ = self.white.X_VK.take(tokens_N, axis=0) @ lam_KQ.astype(np.float32)
        return s_NQ.astype(np.float64)

    def _tail(self, size: _Sizes, square_Q: Array, n: int) -> Array:
        """Σ p̂ⱼ|sⱼ| from rank n on, at most; float32 may have made the squares of the head too large."""
        most_Q = np.sqrt(size.total_Q)
        error_Q = size.single_Q * np.sqrt(self.white.m * self.dist.vocabulary) + np.sqrt(n) * size.basis_Q
        least_Q = np.maximum(np.sqrt(square_Q) * (1 - SUMMING) - error_Q * (n > TIERS[0]), 0.0)
        rest_Q = np.maximum(most_Q * most_Q - least_Q * least_Q, 0.0)
        tail_Q: Array = np.minimum(self._reach_N[n] * size.length_Q, np.sqrt(self.dist.squares_N[n] * rest_Q))
        return tail_Q

    @property
    def _reach_N(self) -> Array:
        """Σ p̂ⱼ‖xⱼ‖ from each rank on; float32's rounding of ‖xⱼ‖ is less than the last factor."""
        dist, norm_V = self.dist, self.white.norm_V
        if len(self._reached_N) != len(dist.order_N) + 1:
            sums_N = from_each_rank_on(dist.head_N * norm_V[dist.order_N], float(dist.rest_V @ norm_V))
            self._reached_N = sums_N * (1 + 1e-5)
        return self._reached_N

    @cached_property
    def _sample(self) -> tuple[Indices, Array, Array32]:
        tokens_S, weight_S = self.dist.sample_beyond(min(TIERS[-1], self.dist.support), SAMPLE)
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

    def _give_up(self, trial: _Trial, seen: int) -> None:
        """Close what a sample of the tail leaves no hope for: a pass over all rows is dear if d is large."""
        if self.white.X_VK.size < LARGE or not trial.open_Q.any() or seen < TIERS[-1]:
            return
        tokens_S, weight_S, X_SK = self._sample
        s_SQ = X_SK @ trial.lam_KQ.astype(np.float32)
        s_SQ[tokens_S[:, None] == trial.tokens_Q] = 0
        tail_Q = weight_S @ np.maximum(trial.slope * s_SQ, -s_SQ)
        trial.open_Q &= trial.value_Q + tail_Q < HOPE * trial.goal_Q

    def _beyond(self, lam_KQ: Array, tokens_Q: Indices, slope: float, done: int) -> Array:
        """f(λ) over the rows from this rank on, in float32."""
        p_V, X_VK, lam32_KQ = self.dist.p.copy(), self.white.X_VK, lam_KQ.astype(np.float32)
        p_V[self.dist.order_N[:done]] = 0
        value_Q = np.zeros(len(tokens_Q))
        for start in range(0, len(p_V), BLOCK):
            s_NQ = X_VK[start : start + BLOCK] @ lam32_KQ
            _forget(s_NQ, tokens_Q - start)
            value_Q += p_V[start : start + BLOCK] @ np.maximum(np.float32(slope) * s_NQ, -s_NQ)
        return value_Q

    def _whole(self, slopes_MQ: Array, tokens_Q: Indices, slope: float) -> Array:
        """f(λ) over the whole vocabulary."""
        value_Q = np.zeros(len(tokens_Q))
        for part, block in self.white.weight.blocks():
            s_NQ = block @ slopes_MQ[:-1] + slopes_MQ[-1]
            _forget(s_NQ, tokens_Q - part.start)
            value_Q += self.dist.p[part] @ np.maximum(slope * s_NQ, -s_NQ)
        return value_Q


def _forget(s_NQ: Array | Array32, places_Q: Indices) -> None:
    """The candidate's own row is no part of its sum."""
    if len(places_Q) == 1:  # as a rule, and then arrays take longer than what they hold
        place = int(places_Q[0])
        if 0 <= place < len(s_NQ):
            s_NQ[place] = 0
        return
    inside = ((places_Q >= 0) & (places_Q < len(s_NQ))).nonzero()[0]
    s_NQ[places_Q[inside], inside] = 0
