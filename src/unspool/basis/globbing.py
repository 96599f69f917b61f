"""Close the bracket: settle the rows whose side is plain, and solve the rest exactly.

    F = max t :  Σ_free yⱼxⱼ + g = t·xᵢ,   g = Σ_settled yⱼxⱼ,   yⱼ = c·p̂ⱼ where sⱼ > 0 and −p̂ⱼ where sⱼ < 0

Near the optimum nearly every row has s ≠ 0 and its multiplier at one end of its box: all of these together are one vector
g, a glob. What is left is a quantile regression in a few rows per unknown, for the interior-point method. Its y and g prove
rejection whatever the settled sides; its λ, tried on the whole vocabulary, proves acceptance, or shows which rows were
settled wrongly.

Portnoy & Koenker 1997, §5 (preprocessing: globs).
papers.bib: portnoy1997gaussian
Differs from the paper: the first sides are those of a Douglas–Rachford iterate, not of a subsample's regression.

Where λ·xᵢ = 1: λ = xᵢ/‖xᵢ‖² − Nμ with N an orthonormal basis of xᵢ's complement (a Householder reflection without its first
column), so that r = X·xᵢ/‖xᵢ‖² and Z = XN.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.interior_point import InteriorPoint
from unspool.basis.whitening import Whitened

ITERATIONS = 40
ROUNDS = 6
# How well the token must be balanced, relative to p̂ᵢ; the proof makes it exact.
NEAR = 1e-8


def globbed(
    white: Whitened,
    mass_V: Array,
    token: int,
    slope: float,
    lam_K: Array,
    y_V: Array,
    s_V: Array,
    goal: float,
    free: int,
) -> Iterator[tuple[Array, Array, float]]:
    """Rounds of settling and solving: yields (λ, multipliers of all rows, t); λ·xᵢ = 1, all scaled by κ.

    Starts from λ and multipliers y within their box that nearly balance; s says how far each row is from changing sides.
    """
    frame = _Frame(_exact(white, np.array([token]))[0])
    usable_V = mass_V > 0
    usable_V[token] = False
    free = min(free, int(np.count_nonzero(usable_V)))
    for _ in range(ROUNDS):
        distance_V = np.where(usable_V, np.abs(s_V), np.inf)
        free_F = np.argpartition(distance_V, free - 1)[:free]
        settled_V = np.where(usable_V, y_V, 0.0)
        settled_V[free_F] = 0
        Z_FK, r_F = frame.split(_exact(white, free_F))
        across_K, along = frame.split_sum(white.basis_MK.T @ white.combine(settled_V[:, None])[:, 0])
        method = InteriorPoint(
            Z_FK, r_F, mass_V[free_F], slope, -across_K, frame.unknowns(lam_K), y_V[free_F]
        )
        if not _run(method, along, goal):
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
    return (
        np.concatenate([block @ white.basis_MK[:-1] for _, block in white.weight.blocks(tokens_N)])
        + white.basis_MK[-1]
    )


def _run(method: InteriorPoint, along: float, goal: float) -> bool:
    """Iterate until the answer is plain; False where the free rows cannot balance the others."""
    for _ in range(ITERATIONS):
        going = method.iterate()
        low, high = method.low + along, method.high + along
        if not going or high < goal / 2:  # it falls without end where nothing balances
            break
        plain = low > goal * (1 + 1e-4) or high < goal * (1 - 1e-2) or high - low < 1e-8 * high
        if method.residual < NEAR * goal and plain:
            return True
    return method.residual < 1e-2 * goal


class _Frame:
    """Coordinates in which xᵢ is the first axis."""

    def __init__(self, x_K: Array) -> None:
        self.x_K, self.square = x_K, float(x_K @ x_K)
        mirror_K = x_K.copy()
        mirror_K[0] += np.copysign(np.sqrt(self.square), x_K[0])
        self.mirror_K = mirror_K / np.linalg.norm(mirror_K)

    def _reflect(self, rows: Array) -> Array:
        return rows - 2 * np.multiply.outer(rows @ self.mirror_K, self.mirror_K)

    def split(self, X_FK: Array) -> tuple[Array, Array]:
        """Z = XN and r = X·xᵢ/‖xᵢ‖²."""
        return self._reflect(X_FK)[:, 1:], X_FK @ self.x_K / self.square

    def split_sum(self, sum_K: Array) -> tuple[Array, float]:
        """Nᵀg and g·xᵢ/‖xᵢ‖²."""
        return self._reflect(sum_K)[1:], float(sum_K @ self.x_K) / self.square

    def unknowns(self, lam_K: Array) -> Array:
        """μ of a λ."""
        return -self._reflect(lam_K)[1:]

    def slopes(self, mu_K: Array) -> Array:
        """λ of a μ."""
        return self.x_K / self.square - self._reflect(np.concatenate([[0.0], mu_K]))
