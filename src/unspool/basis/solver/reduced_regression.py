"""Close the bracket: settle the rows whose side is plain, and solve the rest exactly.

    F = max t :  Σ_free yⱼxⱼ + g = t·xᵢ,   g = Σ_settled yⱼxⱼ,   yⱼ = c·p̂ⱼ where sⱼ > 0 and −p̂ⱼ where sⱼ < 0

Near the optimum nearly every row has s ≠ 0 and its multiplier at one end of its box: all of these together
are one vector g, a glob. What is left is a quantile regression in a few rows per unknown, for the
interior-point method. Its y and g prove rejection whatever the settled sides; its λ, tried on the whole
vocabulary, proves acceptance, or shows which rows were settled wrongly.

Portnoy & Koenker 1997, §5 (preprocessing: globs).
papers.bib: portnoy1997gaussian
Differs from the paper: the first sides are those of a Douglas–Rachford iterate, not of a subsample's
regression.

λ = λ₀ − Nμ: λ₀ is the shortest λ with xᵢ·λ = 1 and xⱼ·λ = 0 for the hard tokens, N an orthonormal basis of
the λ with zeros there, so that s = Xλ₀ − XN·μ. Hard tokens take, in the proof, whatever multipliers the
others leave to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import lapack, solve_triangular

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.interior_point import InteriorPoint
from unspool.basis.solver.whitening import Whitened
from unspool.basis.work import settling, solving

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
