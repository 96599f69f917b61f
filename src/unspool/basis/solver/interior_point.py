"""Interior-point method for weighted quantile regression: Mehrotra's predictor–corrector.

    minimise over μ   Σⱼ wⱼ·max(c·sⱼ, −sⱼ) − g·μ,   s = r − Zμ
    maximise over y   Σⱼ yⱼrⱼ,   Zᵀy = g,   −w ≤ y ≤ c·w

    y = (1+c)·w·u − w,  0 < u < 1;   A = (1+c)·diag(w)·Z;   u·z → 0,  (1−u)·v → 0,  (1+c)·w·s = v − z

Every iteration solves twice with AᵀDA, D = 1/(z/u + v/(1−u)). Unlike splitting it does not slow down when
F_i(c) is close to p̂ᵢ, but each iteration needs a factorisation, so it is the last stage of the cascade.

Mehrotra 1992 (predictor and corrector); Portnoy & Koenker 1997, §4 (for quantile regression).
papers.bib: mehrotra1992implementation, portnoy1997gaussian

Symbols: `linear` = g, `width` = (1+c)·w, `rest` = 1 − u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.whitening import WhitenedMatrix
from unspool.basis.work import interior_point_cost, reduction_cost

# The share of the step to the boundary that is taken.
STEP_FRACTION = 0.9995
# Up to this many entries the system is solved by a singular value decomposition.
MAX_SVD_SIZE = 30_000


class InteriorPoint:
    """The state of the method; low ≤ optimum ≤ high if `residual` is zero (Zᵀy = g)."""

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
        """One predictor and one corrector step; False if float64 cannot continue."""
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
            for _ in range(2):  # the second pass refines Aᵀ·du = primal
                du_N = D_N * (h_N - self.A_NK @ dmu_K)
                dmu_K += solve(du_N @ self.A_NK - primal_K)
            du_N = D_N * (h_N - self.A_NK @ dmu_K)
            return dmu_K, du_N, (high_N + v_N * du_N) / rest_N, (low_N - z_N * du_N) / u_N

        _, du_N, dv_N, dz_N = direction(-u_N * z_N, -rest_N * v_N)
        primal_step, dual_step = _max_step(u_N, du_N, rest_N, -du_N), _max_step(v_N, dv_N, z_N, dz_N)
        gap = float(u_N @ z_N + rest_N @ v_N)
        predicted_gap = float(
            (u_N + primal_step * du_N) @ (z_N + dual_step * dz_N)
            + (rest_N - primal_step * du_N) @ (v_N + dual_step * dv_N)
        )
        centre = (predicted_gap / gap) ** 3 * gap / (2 * len(u_N))
        dmu_K, du_N, dv_N, dz_N = direction(
            centre - u_N * z_N - du_N * dz_N, centre - rest_N * v_N + du_N * dv_N
        )
        primal_step, dual_step = _max_step(u_N, du_N, rest_N, -du_N), _max_step(v_N, dv_N, z_N, dz_N)
        self.u_N, self.mu_K = u_N + primal_step * du_N, self.mu_K + dual_step * dmu_K
        self.v_N, self.z_N = v_N + dual_step * dv_N, z_N + dual_step * dz_N
        return bool(np.isfinite(self.mu_K).all() and (self.u_N > 0).all() and (self.u_N < 1).all())


def _solver(scaled_NK: Array) -> Callable[[Array], Array] | None:
    """r ↦ (AᵀDA)⁻¹r; by singular values if A is small, which also handles dependent columns."""
    if not np.isfinite(scaled_NK).all():
        return None
    if scaled_NK.size <= MAX_SVD_SIZE:
        _, size_K, axes_KK = np.linalg.svd(scaled_NK, full_matrices=False)
        kept_K = size_K > 1e-14 * size_K.max(initial=0.0)
        half_KK = axes_KK[kept_K] / size_K[kept_K, None]
        return lambda r_K: half_KK.T @ (half_KK @ r_K)
    gram_KK = scaled_NK.T @ scaled_NK
    gram_KK[np.diag_indices(len(gram_KK))] *= 1 + 1e-14
    lower_KK, failed = lapack.dpotrf(gram_KK, lower=1)
    return None if failed else lambda r_K: lapack.dpotrs(lower_KK, r_K, lower=1)[0]


def _max_step(a_N: Array, da_N: Array, b_N: Array, db_N: Array) -> float:
    """The longest step up to 1 that keeps a and b positive."""
    steepest = max(float((-da_N / a_N).max()), float((-db_N / b_N).max()))
    return min(1.0, STEP_FRACTION / steepest) if steepest > 0 else 1.0


MAX_ITERATIONS = 40
MAX_ROUNDS = 6
# The residual that ends the iterations, relative to p̂ᵢ; the proof repairs it.
MAX_RELATIVE_RESIDUAL = 1e-8


def solve_reduced(
    whitened: WhitenedMatrix,
    hard_H: Indices,
    mass_V: Array,
    token: int,
    slope: float,
    lam_K: Array,
    y_V: Array,
    s_V: Array,
    own_mass: float,
    free: int,
    spend: Callable[[float], bool] = lambda _: True,
) -> Iterator[tuple[Array, Array, float]]:
    """Fix the multipliers of most rows and solve for the others; yields (λ, all multipliers, t) per round.

        F = max t :  Σ_free yⱼxⱼ + g = t·xᵢ,  g = Σ_fixed yⱼxⱼ,  yⱼ = c·p̂ⱼ if sⱼ > 0 and −p̂ⱼ if sⱼ < 0

    Near the optimum nearly every row has s ≠ 0 and its multiplier at one end of its box. These rows
    together form one vector g, a glob. The remaining quantile regression has a few rows per unknown. Its y
    and g prove rejection; its λ, evaluated on the whole vocabulary, proves acceptance or shows which rows
    were fixed at the wrong end.

    Starts from λ and multipliers y within their box that nearly balance; |s| measures how far rows are from
    changing sides. λ·xᵢ = 1, and all masses are scaled by κ. If `spend` returns False, the work ends.

    Portnoy & Koenker 1997, §5 (preprocessing: globs). papers.bib: portnoy1997gaussian
    Differs from the paper: the initial sides are those of a Douglas–Rachford iterate, not of the regression
    on a subsample.

    Symbols: λ = λ₀ − Nμ; λ₀, `start`, is the shortest λ with xᵢ·λ = 1 and xⱼ·λ = 0 for the hard tokens, N an
    orthonormal basis of their null space, so s = Xλ₀ − XN·μ. The proof computes the multipliers of hard
    tokens.
    """
    fixed_CK = _whitened_rows_float64(whitened, np.append(hard_H[hard_H != token], token))
    count = len(fixed_CK)
    Q_KK, R_KC = qr(fixed_CK.T, check_finite=False)
    if not (count < len(Q_KK) and np.abs(R_KC.diagonal()).min() > 1e-9 * np.abs(fixed_CK).max()):
        return
    N_KJ = np.ascontiguousarray(Q_KK[:, count:])
    start_K = Q_KK[:, :count] @ solve_triangular(R_KC[:count], np.eye(count)[:, -1], trans=1)
    usable_V = mass_V > 0
    usable_V[token] = usable_V[hard_H] = False
    free = min(free, int(np.count_nonzero(usable_V)))
    vocabulary, width = whitened.X_VK.shape
    for _ in range(MAX_ROUNDS):
        if not spend(reduction_cost(free, width, vocabulary)):
            return
        distance_V = np.where(usable_V, np.abs(s_V), np.inf)
        free_F = np.argpartition(distance_V, free - 1)[:free]
        fixed_V = np.where(usable_V, y_V, 0.0)
        fixed_V[free_F] = 0
        X_FK = _whitened_rows_float64(whitened, free_F)
        glob_K = whitened.basis_MK.T @ whitened.combine(fixed_V[:, None])[:, 0]
        along, unknowns_J = float(glob_K @ start_K), -lam_K @ N_KJ
        problem = (X_FK @ N_KJ, X_FK @ start_K, mass_V[free_F], slope, -glob_K @ N_KJ)
        method = InteriorPoint(*problem, unknowns_J, y_V[free_F])
        if not _run(method, along, own_mass, spend):
            return
        lam_K = start_K - N_KJ @ method.mu_K
        if not np.abs(lam_K).max() < 1e100:
            return
        fixed_V[free_F] = method.y_N
        yield lam_K, fixed_V, method.low + along
        s_V = whitened.project((whitened.basis_MK @ lam_K)[:, None])[:, 0]
        inside_V = (fixed_V > -0.999 * mass_V) & (fixed_V < 0.999 * slope * mass_V)
        y_V = np.where(inside_V, fixed_V, np.where(s_V > 0, slope * mass_V, -mass_V))
        s_V = np.where(inside_V, 0.0, s_V)


def _whitened_rows_float64(whitened: WhitenedMatrix, tokens_N: Indices) -> Array:
    """Whitened rows in float64; X itself is float32."""
    parts = [block @ whitened.basis_MK[:-1] for _, block in whitened.weight.blocks(tokens_N)]
    X_NK: Array = np.concatenate(parts) + whitened.basis_MK[-1]
    return X_NK


def _run(method: InteriorPoint, along: float, own_mass: float, spend: Callable[[float], bool]) -> bool:
    """Iterate until the bracket decides; False if the free rows cannot balance the fixed ones."""
    for _ in range(MAX_ITERATIONS):
        if not spend(interior_point_cost(*method.A_NK.shape)):
            break
        has_progress = method.iterate()
        low, high = method.low + along, method.high + along
        if not has_progress or high < own_mass / 2:  # unbounded below: nothing balances
            break
        is_decided = low > own_mass * (1 + 1e-4) or high < own_mass * (1 - 1e-2) or high - low < 1e-8 * high
        if method.residual < MAX_RELATIVE_RESIDUAL * own_mass and is_decided:
            return True
    return method.residual < 1e-2 * own_mass
