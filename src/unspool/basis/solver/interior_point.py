"""Solve a small weighted quantile regression to the end: Mehrotra's predictor–corrector method.

    minimise over μ   Σⱼ wⱼ·max(c·sⱼ, −sⱼ) − g·μ,   s = r − Zμ
    maximise over y   Σⱼ yⱼrⱼ,   Zᵀy = g,   −w ≤ y ≤ c·w

    y = (1+c)·w·u − w,  0 < u < 1;   A = (1+c)·diag(w)·Z;   u·z → 0,  (1−u)·v → 0,  (1+c)·w·s = v − z

Every iteration solves twice with AᵀDA, D = 1/(z/u + v/(1−u)). Unlike the splitting method it hardly slows
down where the two sides nearly meet, but an iteration costs a factorisation: it is the last resort.

Mehrotra 1992 (predictor and corrector); Portnoy & Koenker 1997, §4 (for quantile regression).
papers.bib: mehrotra1992implementation, portnoy1997gaussian

Symbols: `linear` = g, `width` = (1+c)·w, `rest` = 1 − u.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from unspool.basis.arrays import Array

# How near to its boundary a step may go.
BACK = 0.9995
# So many numbers are worth a singular value decomposition.
SMALL = 30_000


class InteriorPoint:
    """The method's state; `low` ≤ optimum ≤ `high` as far as `residual` says that Zᵀy = g."""

    def __init__(
        self, Z_NK: Array, r_N: Array, w_N: Array, slope: float, linear_K: Array, mu_K: Array, y_N: Array
    ) -> None:
        self.w_N, self.r_N = w_N, r_N
        self.width_N = (1 + slope) * w_N
        self.A_NK = Z_NK * self.width_N[:, None]
        self.b_K = w_N @ Z_NK + linear_K
        self.q_N = self.width_N * r_N
        self.mu_K = mu_K
        self.u_N = np.clip((y_N + w_N) / self.width_N, 0.05, 0.95)
        s_N = self.q_N - self.A_NK @ mu_K
        lift = 0.1 * float(np.abs(s_N).mean()) + 1e-300
        self.v_N, self.z_N = np.maximum(s_N, 0) + lift, np.maximum(-s_N, 0) + lift

    @property
    def y_N(self) -> Array:
        """The multipliers, strictly within their box."""
        return self.width_N * self.u_N - self.w_N

    @property
    def low(self) -> float:
        """The dual value: a lower bound."""
        return float(self.y_N @ self.r_N)

    @property
    def high(self) -> float:
        """The primal value: an upper bound."""
        s_N = self.q_N - self.A_NK @ self.mu_K
        return float(np.maximum(s_N, 0).sum() - self.w_N @ self.r_N + self.b_K @ self.mu_K)

    @property
    def residual(self) -> float:
        """‖Zᵀy − g‖∞."""
        return float(np.abs(self.b_K - self.u_N @ self.A_NK).max(initial=0.0))

    def iterate(self) -> bool:
        """One predictor and one corrector step; False where numbers have run out."""
        u_N, v_N, z_N, rest_N = self.u_N, self.v_N, self.z_N, 1 - self.u_N
        with np.errstate(all="ignore"):
            D_N = 1 / (z_N / u_N + v_N / rest_N)
            solve = _solver(self.A_NK * np.sqrt(D_N)[:, None])
        if solve is None:
            return False
        primal_K = self.b_K - u_N @ self.A_NK
        dual_N = self.q_N - self.A_NK @ self.mu_K - v_N + z_N

        def direction(low_N: Array, high_N: Array) -> tuple[Array, Array, Array, Array]:
            """The Newton step with z·du + u·dz = low and (1−u)·dv − v·du = high."""
            h_N = dual_N - high_N / rest_N + low_N / u_N
            dmu_K = np.zeros_like(primal_K)
            for _ in range(2):  # the second time refines what rounding left of Aᵀ·du = primal
                du_N = D_N * (h_N - self.A_NK @ dmu_K)
                dmu_K += solve(du_N @ self.A_NK - primal_K)
            du_N = D_N * (h_N - self.A_NK @ dmu_K)
            return dmu_K, du_N, (high_N + v_N * du_N) / rest_N, (low_N - z_N * du_N) / u_N

        _, du_N, dv_N, dz_N = direction(-u_N * z_N, -rest_N * v_N)
        here, there = _reach(u_N, du_N, rest_N, -du_N), _reach(v_N, dv_N, z_N, dz_N)
        now = float(u_N @ z_N + rest_N @ v_N)
        then = float(
            (u_N + here * du_N) @ (z_N + there * dz_N) + (rest_N - here * du_N) @ (v_N + there * dv_N)
        )
        centre = (then / now) ** 3 * now / (2 * len(u_N))
        dmu_K, du_N, dv_N, dz_N = direction(
            centre - u_N * z_N - du_N * dz_N, centre - rest_N * v_N + du_N * dv_N
        )
        here, there = _reach(u_N, du_N, rest_N, -du_N), _reach(v_N, dv_N, z_N, dz_N)
        self.u_N, self.mu_K = u_N + here * du_N, self.mu_K + there * dmu_K
        self.v_N, self.z_N = v_N + there * dv_N, z_N + there * dz_N
        return bool(np.isfinite(self.mu_K).all() and (self.u_N > 0).all() and (self.u_N < 1).all())


def _solver(scaled_NK: Array) -> Callable[[Array], Array] | None:
    """r ↦ (AᵀDA)⁻¹r. Few rows are decomposed into singular values, which dependent columns do not disturb."""
    if not np.isfinite(scaled_NK).all():
        return None
    if scaled_NK.size <= SMALL:
        _, size_K, axes_KK = np.linalg.svd(scaled_NK, full_matrices=False)
        kept_K = size_K > 1e-14 * size_K.max(initial=0.0)
        half_KK = axes_KK[kept_K] / size_K[kept_K, None]
        return lambda r_K: half_KK.T @ (half_KK @ r_K)
    gram_KK = scaled_NK.T @ scaled_NK
    gram_KK[np.diag_indices(len(gram_KK))] *= 1 + 1e-14
    lower_KK, failed = lapack.dpotrf(gram_KK, lower=1)
    return None if failed else lambda r_K: lapack.dpotrs(lower_KK, r_K, lower=1)[0]


def _reach(a_N: Array, da_N: Array, b_N: Array, db_N: Array) -> float:
    """The longest step up to 1 that keeps a and b positive."""
    steepest = max(float((-da_N / a_N).max()), float((-db_N / b_N).max()))
    return min(1.0, BACK / steepest) if steepest > 0 else 1.0
