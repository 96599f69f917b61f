"""Douglas–Rachford splitting in the Lewis metric: search for both kinds of certificates at once.

    A = {y : Σⱼ yⱼxⱼ = p̂ᵢxᵢ}      B = {y : −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ}            reject i  ⇔  A ∩ B ≠ ∅

    b = Π_B(v)      d = P·(p̂ᵢxᵢ − Σⱼ(2b − v)ⱼxⱼ)      a = Π_A(2b − v) = 2b − v + ΩXd      v ← v + 1.5·(a − b)

a is always in A; if it is in B too, it proves rejection. If A and B are disjoint, v diverges along a
direction d that separates them: λ = d/(xᵢ·d) has f(λ) < p̂ᵢ and proves acceptance. The first d is the
least-squares λ. The problem is homogeneous and the metric is Ω, so a step size is not needed.

Boyd et al. 2011, §5.1 (a point in the intersection of convex sets) and §3.4.3 (over-relaxation); the same
iteration is ADMM for the dual (papers.bib: boyd2011distributed).

If the multipliers of some rows are fixed, A becomes Σⱼ yⱼxⱼ = p̂ᵢxᵢ − g with g (`glob`) the sum over the
fixed rows.

Symbols: `target` replaces p̂ᵢxᵢ in A with a factor slightly above 1 as a margin. Hard tokens take the
multipliers that balance the residual of the soft ones. A token's own row is excluded: without it P becomes
P + β·ttᵀ with t = P·xᵢ/(xᵢ·P·xᵢ), `_own_direction_KQ`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from unspool.basis.arrays import Array, Array32, Indices, as_float64
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import LewisMetric, SearchRows
from unspool.basis.solver.whitening import WhitenedMatrix

RELAXATION = np.float32(1.5)
TARGET_FACTOR = 1.0005


@dataclass(frozen=True, eq=False)
class SearchSnapshot:
    """One token's search: its rows, v, s = X·λ and λ."""

    rows: SearchRows
    v_S: Array32
    s_S: Array32
    lam_K: Array32
    lam_sum_K: Array32
    """The relaxed sum of all its λ; a row that never left its box has v = ω·x·(this)."""


class DouglasRachford:
    """The search for Q tokens in parallel, one column each. All probabilities are scaled by κ."""

    def __init__(
        self,
        whitened: WhitenedMatrix,
        dist: Distribution,
        metric: LewisMetric,
        tokens_Q: Indices,
        slope: float,
        glob_KQ: Array32 | None = None,
    ) -> None:
        rows = metric.rows
        self.metric = metric
        self.slope = np.float32(slope)
        self.tokens_Q = tokens_Q
        self.ranks_Q = dist.ranks(tokens_Q)
        self.own_mass_Q: Array = dist.p[tokens_Q] * dist.kappa
        self.x_KQ: Array32 = np.ascontiguousarray(whitened.X_VK[tokens_Q].T)
        self.glob_KQ: Array32 = np.zeros_like(self.x_KQ) if glob_KQ is None else glob_KQ
        target_Q = (TARGET_FACTOR * self.own_mass_Q).astype(np.float32)
        self.target_KQ: Array32 = target_Q * self.x_KQ - self.glob_KQ
        self._low_S1: Array32 = -rows.mass_S[:, None]
        self._high_S1: Array32 = self.slope * rows.mass_S[:, None]
        self._omega_S1: Array32 = rows.omega_S[:, None]
        with np.errstate(divide="ignore"):
            self._inverse_S1 = np.where(rows.mass_S > 0, 1 / rows.mass_S, np.float32(0))[:, None]
        self._own = np.nonzero(rows.tokens_S[:, None] == tokens_Q)
        """Positions of the tokens' own rows: (rows, columns)."""
        self._own_direction_KQ, self._beta_Q = self._exclude_own_rows()
        self.v_SQ: Array32 = np.zeros((len(rows.mass_S), len(tokens_Q)), dtype=np.float32)
        self.lam_KQ: Array32 = self._own_direction_KQ
        self.lam_sum_KQ: Array32 = np.zeros_like(self.x_KQ)

    def _exclude_own_rows(self) -> tuple[Array32, Array32]:
        """t and β of each column."""
        metric = self.metric
        direction_KQ = metric.solve(self.x_KQ)
        leverage_Q = np.einsum("kq,kq->q", self.x_KQ, direction_KQ)
        # The hard tokens alone balance a token in their span.
        remainder_Q = np.abs(metric.project_out_hard(self.x_KQ)).max(axis=0) / np.abs(self.x_KQ).max(axis=0)
        usable_Q = (remainder_Q > 1e-4) & (leverage_Q > 0)
        scale_Q = np.where(usable_Q, 1 / np.where(usable_Q, leverage_Q, 1), 0)
        direction_KQ = direction_KQ * scale_Q.astype(np.float32)
        beta_Q = np.zeros(len(leverage_Q), dtype=np.float32)
        rows, columns = self._own
        omega, leverage = metric.rows.omega_S[rows], leverage_Q[columns]
        beta_Q[columns] = omega * leverage * leverage / np.maximum(1 - omega * leverage, np.float32(1e-4))
        for q in np.flatnonzero(self.ranks_Q < metric.n_hard):
            direction_KQ[:, q] = metric.solve_HK[self.ranks_Q[q]]
            beta_Q[q] = 1 / metric.norm_H[self.ranks_Q[q]]
        return direction_KQ, beta_Q

    def iterate(self) -> None:
        X_SK = self.metric.rows.X_SK
        b_SQ = np.minimum(np.maximum(self.v_SQ, self._low_S1), self._high_S1)
        reflected_SQ = 2 * b_SQ - self.v_SQ
        residual_KQ = self.target_KQ - X_SK.T @ reflected_SQ
        along_Q = np.einsum("kq,kq->q", self._own_direction_KQ, residual_KQ) * self._beta_Q
        self.lam_KQ = self.metric.solve(residual_KQ) + self._own_direction_KQ * along_Q
        self.lam_sum_KQ += RELAXATION * self.lam_KQ
        with np.errstate(invalid="ignore"):  # BLAS may set the flag for lanes beyond the matrix
            self.s_SQ: Array32 = X_SK @ self.lam_KQ
        self.s_SQ[self._own] = 0
        self.a_SQ: Array32 = reflected_SQ + self._omega_S1 * self.s_SQ
        self.v_SQ += RELAXATION * (self.a_SQ - b_SQ)

    def required_box_scale(self) -> Array:
        """The factor by which the box must grow to contain a; at most 1 proves rejection."""
        relative_SQ = self.a_SQ * self._inverse_S1
        box_scale_Q = as_float64(np.maximum(relative_SQ.max(axis=0) / self.slope, -relative_SQ.min(axis=0)))
        near = np.flatnonzero(box_scale_Q <= 1)
        if self.metric.n_hard and len(near):
            box_scale_Q[near] = np.maximum(box_scale_Q[near], self._hard_box_scale(near))
        return box_scale_Q

    def _hard_box_scale(self, columns: Indices) -> Array:
        """The same for the hard tokens, whose multipliers balance the residual."""
        metric = self.metric
        residual_KQ = self.target_KQ[:, columns] - metric.rows.X_SK.T @ self.a_SQ[:, columns]
        relative_HQ = metric.solve_HK @ residual_KQ / metric.hard_mass_H[:, None]
        relative_HQ[np.arange(metric.n_hard)[:, None] == self.ranks_Q[columns]] = 0
        return as_float64(np.maximum(relative_HQ / self.slope, -relative_HQ).max(axis=0))

    def multipliers(self, columns: Indices) -> Array:
        """a of the head rows, preceded by zeros for the hard tokens, which the proof computes."""
        return np.concatenate([np.zeros((self.metric.n_hard, len(columns))), self.a_SQ[:, columns]])

    def upper_bounds(self) -> Array:
        """f(λ) over the metric's rows; infinite if xᵢ·λ ≤ 0."""
        value_Q = self.metric.rows.mass_S @ np.maximum(self.slope * self.s_SQ, -self.s_SQ)
        value_Q += np.einsum("kq,kq->q", self.glob_KQ, self.lam_KQ)
        own_Q = np.einsum("kq,kq->q", self.x_KQ, self.lam_KQ)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(own_Q > 0, value_Q / own_Q, np.inf).astype(np.float64)

    def snapshot(self, column: int) -> SearchSnapshot:
        parts = (self.v_SQ, self.s_SQ, self.lam_KQ, self.lam_sum_KQ)
        return SearchSnapshot(self.metric.rows, *(part[:, column] for part in parts))

    def resume(self, column: int, other: SearchSnapshot) -> None:
        """Continue a search over a head and a sample, over more rows than its head.

        The head keeps its v. Any other row gets v = ω·x·Σλ, at most ω·α·s outside its box, with α estimated
        from the rows of the head.
        """
        head, other_rows, rows = other.rows.n_head, other.rows, self.metric.rows
        v_N, s_N = other.v_S[:head], other.s_S[:head]
        omega_N, mass_N = other_rows.omega_S[:head], other_rows.mass_S[:head]
        beyond_N = v_N - np.minimum(np.maximum(v_N, -mass_N), self.slope * mass_N)
        alpha = np.float32(beyond_N @ s_N / max(float((omega_N * s_N) @ s_N), 1e-30))
        unclipped_S, s_S = (
            rows.X_SK @ np.stack([other.lam_sum_K, alpha * other.lam_K], axis=1)
        ).T * rows.omega_S
        b_S = np.minimum(np.maximum(unclipped_S, -rows.mass_S), self.slope * rows.mass_S)
        v_S = b_S + np.where((unclipped_S - b_S) * s_S > 0, s_S, np.float32(0))
        v_S[slice(head) if rows.n_head else other_rows.tokens_S[:head]] = v_N
        v_S[rows.tokens_S == self.tokens_Q[column]] = 0
        self.v_SQ[:, column], self.lam_sum_KQ[:, column] = v_S, other.lam_sum_K

    def box_sides(self, column: int, mass_V: Array) -> tuple[Array, Array]:
        """Over all rows: the multipliers b, and each row's relative distance from its end of the box."""
        v_V = self.v_SQ[:, column].astype(np.float64)
        y_V = np.clip(v_V, -mass_V, float(self.slope) * mass_V)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance_V = np.where(mass_V > 0, (v_V - y_V) / (np.maximum(mass_V, 1.0) * mass_V), np.inf)
        y_V[self.tokens_Q[column]] = 0
        return y_V, distance_V

    def keep_columns(self, columns: Indices) -> None:
        self.tokens_Q, self.ranks_Q = self.tokens_Q[columns], self.ranks_Q[columns]
        self.own_mass_Q, self._beta_Q = self.own_mass_Q[columns], self._beta_Q[columns]
        for name, value in vars(self).items():  # the shape suffix tells which arrays have columns
            if isinstance(value, np.ndarray) and name.endswith(("_KQ", "_SQ")):
                setattr(self, name, np.ascontiguousarray(value[:, columns]))
        self._own = np.nonzero(self.metric.rows.tokens_S[:, None] == self.tokens_Q)


LEAST_SQUARES_ROWS = 128


class LeastSquares:
    """Least squares in the Lewis metric over the most probable rows: a cheap first λ for any token.

        λ ∝ argmin{Σ_head ωⱼ(xⱼ·λ)² + ω_tail‖λ‖² : xᵢ·λ = 1} ∝ xᵢ − X₀ᵀ(D + X₀X₀ᵀ)⁻¹X₀xᵢ
        D = diag(ω_tail/ωⱼ),   ω_tail = Σ_tail p̂/κ

    The tail enters as one isotropic block, because its rows are whitened. n₀ rows need one n₀ × n₀ Cholesky
    factor for all tokens; this λ proves most acceptances at full width.

    Weights: Cohen & Peng 2015, §2 (papers.bib: cohen2015lewis).
    """

    def __init__(self, whitened: WhitenedMatrix, dist: Distribution, rows: int = LEAST_SQUARES_ROWS) -> None:
        n = min(rows, len(dist.head_N))
        p_N = dist.head_N[:n]
        omega_N = np.maximum(p_N * p_N, p_N / dist.kappa)
        self._white, self._dist = whitened, dist
        self._X_NK: Array = whitened.X_VK.take(dist.order_N[:n], axis=0).astype(np.float64)
        gram_NN = blas.dsyrk(1.0, self._X_NK.T, trans=1, lower=1)
        # Without a tail, s = 0 everywhere may solve the problem; a tiny one keeps the matrix definite.
        tail = dist.tail_mass_N[n] / dist.kappa + 1e-12 * omega_N[0]
        corner_N = gram_NN.T.reshape(-1)[:: n + 1]
        corner_N += tail / omega_N + 1e-12 * corner_N
        self._lower_NN, failed = lapack.dpotrf(gram_NN, lower=1, clean=0, overwrite_a=1)
        self.is_usable = not failed

    def solve(self, tokens_Q: Indices) -> Array:
        """λ of each token, (K, Q), not normalised."""
        x_KQ = self._white.X_VK[tokens_Q].astype(np.float64).T
        ranks_Q = self._dist.ranks(tokens_Q)
        inside = np.flatnonzero(ranks_Q < len(self._X_NK))
        right_NQ = self._X_NK @ x_KQ
        # For a row of X₀, X₀ᵀ(D + X₀X₀ᵀ)⁻¹e is the same λ up to scale, without cancellation.
        right_NQ[:, inside] = 0
        right_NQ[ranks_Q[inside], inside] = -1
        x_KQ[:, inside] = 0
        out: Array = x_KQ - self._X_NK.T @ lapack.dpotrs(self._lower_NN, right_NQ, lower=1)[0]
        return out
