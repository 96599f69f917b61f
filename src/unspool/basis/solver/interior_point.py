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

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import lapack, solve_triangular

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.whitening import Whitened
from unspool.basis.work import settling, solving

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


ITERATIONS = 40
ROUNDS = 6
# How well the token must be balanced, relative to p̂ᵢ; the proof makes it exact.
NEAR = 1e-8


def solve_reduced(
    white: Whitened,
    hard_H: Indices,
    mass_V: Array,
    token: int,
    slope: float,
    lam_K: Array,
    y_V: Array,
    s_V: Array,
    goal: float,
    free: int,
    spend: Callable[[float], bool] = lambda _: True,
) -> Iterator[tuple[Array, Array, float]]:
    """Rounds of settling and solving: yields (λ, multipliers of all rows, t); λ·xᵢ = 1, all scaled by κ.

    Starts from λ and multipliers y within their box that nearly balance; s says how far rows are from
    changing sides. `spend` is asked before work is done, and ends it.

    Close the bracket: settle the rows whose side is plain, and solve the rest exactly.

        F = max t :  Σ_free yⱼxⱼ + g = t·xᵢ,  g = Σ_settled yⱼxⱼ,  yⱼ = c·p̂ⱼ where sⱼ > 0 and −p̂ⱼ where sⱼ < 0

    Near the optimum nearly every row has s ≠ 0 and its multiplier at one end of its box: all of these
    together are one vector g, a glob. What is left is a quantile regression in a few rows per unknown, for
    the interior-point method. Its y and g prove rejection whatever the settled sides; its λ, tried on the
    whole vocabulary, proves acceptance, or shows which rows were settled wrongly.

    Portnoy & Koenker 1997, §5 (preprocessing: globs).
    papers.bib: portnoy1997gaussian
    Differs from the paper: the first sides are those of a Douglas–Rachford iterate, not of a subsample's
    regression.

    λ = λ₀ − Nμ: λ₀ is the shortest λ with xᵢ·λ = 1 and xⱼ·λ = 0 for the hard tokens, N an orthonormal basis
    of the λ with zeros there, so that s = Xλ₀ − XN·μ. Hard tokens take, in the proof, whatever multipliers
    the others leave to them.
    """
    frame = _Frame(_exact(white, np.append(hard_H[hard_H != token], token)))
    if not frame.usable:
        return
    usable_V = mass_V > 0
    usable_V[token] = usable_V[hard_H] = False
    free = min(free, int(np.count_nonzero(usable_V)))
    vocabulary, width = white.X_VK.shape
    for _ in range(ROUNDS):
        if not spend(settling(free, width, vocabulary)):
            return
        distance_V = np.where(usable_V, np.abs(s_V), np.inf)
        free_F = np.argpartition(distance_V, free - 1)[:free]
        settled_V = np.where(usable_V, y_V, 0.0)
        settled_V[free_F] = 0
        Z_FK, r_F = frame.split(_exact(white, free_F))
        glob_K = white.basis_MK.T @ white.combine(settled_V[:, None])[:, 0]
        across_1K, along_1 = frame.split(glob_K[None])
        along = float(along_1[0])
        method = InteriorPoint(
            Z_FK, r_F, mass_V[free_F], slope, -across_1K[0], frame.unknowns(lam_K), y_V[free_F]
        )
        if not _run(method, along, goal, spend):
            return
        lam_K = frame.slopes(method.mu_K)
        if not np.abs(lam_K).max() < 1e100:
            return
        settled_V[free_F] = method.y_N
        yield lam_K, settled_V, method.low + along
        s_V = white.project((white.basis_MK @ lam_K)[:, None])[:, 0]
        inside_V = (settled_V > -0.999 * mass_V) & (settled_V < 0.999 * slope * mass_V)
        y_V = np.where(inside_V, settled_V, np.where(s_V > 0, slope * mass_V, -mass_V))
        s_V = np.where(inside_V, 0.0, s_V)


def _exact(white: Whitened, tokens_N: Indices) -> Array:
    """Whitened rows in float64: those of the search are rounded to float32."""
    parts = [block @ white.basis_MK[:-1] for _, block in white.weight.blocks(tokens_N)]
    X_NK: Array = np.concatenate(parts) + white.basis_MK[-1]
    return X_NK


def _run(method: InteriorPoint, along: float, goal: float, spend: Callable[[float], bool]) -> bool:
    """Iterate until the answer is plain; False where the free rows cannot balance the others."""
    for _ in range(ITERATIONS):
        if not spend(solving(*method.A_NK.shape)):
            break
        going = method.iterate()
        low, high = method.low + along, method.high + along
        if not going or high < goal / 2:  # it falls without end where nothing balances
            break
        plain = low > goal * (1 + 1e-4) or high < goal * (1 - 1e-2) or high - low < 1e-8 * high
        if method.residual < NEAR * goal and plain:
            return True
    return method.residual < 1e-2 * goal


class _Frame:
    """Coordinates in which the hard rows and xᵢ, which is the last of them, are the first axes."""

    def __init__(self, fixed_CK: Array) -> None:
        count, width = fixed_CK.shape
        self._reflectors_KC, self._tau, _, _ = lapack.dgeqrf(fixed_CK.T)
        R_CC = np.triu(self._reflectors_KC[:count])
        size_C = np.abs(R_CC.diagonal())
        self.usable = count < width and bool((size_C > 1e-9 * np.abs(fixed_CK).max()).all())
        self._count = count
        if self.usable:
            self._start_C = solve_triangular(R_CC, np.eye(count)[:, -1], trans=1)
            padded_1K = np.append(self._start_C, np.zeros(width - count))[None]
            self.start_K: Array = self._turned(padded_1K, b"T")[0]
            """λ₀"""

    def _turned(self, rows_FK: Array, way: bytes = b"N") -> Array:
        """rows·Q, or rows·Qᵀ."""
        size = max(1, len(rows_FK)) * 64
        return np.asarray(lapack.dormqr(b"R", way, self._reflectors_KC, self._tau, rows_FK, size)[0])

    def split(self, X_FK: Array) -> tuple[Array, Array]:
        """XN and X·λ₀."""
        turned_FK = self._turned(X_FK)
        return np.ascontiguousarray(turned_FK[:, self._count :]), turned_FK[:, : self._count] @ self._start_C

    def unknowns(self, lam_K: Array) -> Array:
        """μ of a λ."""
        return -self._turned(lam_K[None])[0, self._count :]

    def slopes(self, mu_K: Array) -> Array:
        """λ of a μ."""
        moved_K: Array = self._turned(np.append(np.zeros(self._count), mu_K)[None], b"T")[0]
        return self.start_K - moved_K
