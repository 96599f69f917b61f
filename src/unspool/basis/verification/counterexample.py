"""A rejection is a counterexample: a distribution that balances exactly, next to the one written down.

    W̃ᵀy′ = 0,   −p̂ ≤ y′ ≤ c·p̂,   y′ᵢ = −p̂ᵢ,   |y′ − y| ≤ 10⁻⁶·p̂

y in float64 can hardly balance exactly. Its gap e = W̃ᵀy, computed without rounding, must look like rounding
(10⁻⁹ of Σ|y|·max|w| in each column of W̃), and a change u of y must be known to exist that closes it, within
the room that each yⱼ has in its box. It is enclosed: for A, the rows with most room, and R any matrix at all,

    E = I − AᵀR,  ‖E‖ ≤ θ < 1   ⇒   u = −R(AᵀR)⁻¹e  has  Aᵀu = −e  and  |u| ≤ |R|·‖e‖/(1 − θ)

with R from a QR decomposition in float64, and θ the norm of E as float64 finds it and of all that rounding
can have done to it. Where this does not do, since columns depend on each other or rooms differ by many orders
of magnitude, and rows or columns are few, u is computed by exact elimination over rows that are independent,
those with most room first. Either way, a u of float64 is added to y first where the gap is larger than it
need be.

Finlayson et al. 2024, eq. 3; Rump 2010 (verified solutions of linear systems by an approximate inverse).
papers.bib: finlayson2024closing, rump2010verification
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from unspool.basis.arrays import Array, Indices, float64
from unspool.basis.certificate import Rejection
from unspool.basis.verification.inequality import TINY, rows_of
from unspool.basis.verification.rational import Exact, combination, power_of_two

UNBALANCED = Fraction(1, 10**9)
MENDED = Fraction(1, 10**6)
ROUNDS = 3
# Up to so many rows or columns are eliminated exactly: numbers grow by 16 digits with each.
FEW = 32
# A row that others make up to this much is not among the independent ones.
DEPENDENT = 1e-11


class Counterexample:
    """One rejection: shifts y of some rows, and −p̂ᵢ of the token's own, which comes last."""

    def __init__(self, proof: Rejection, W: Any, largest_M: Array, p_V: Array, slope: Fraction) -> None:
        i = proof.token
        used_N = (proof.rows_N != i) & (proof.shift_N != 0)  # its own shift is −p̂ᵢ, whatever is written
        rows_N, shift_N = proof.rows_N[used_N], proof.shift_N[used_N]
        self.slope, self.largest_M = slope, largest_M
        self.p_N, self.p_i, self.shift_N = p_V[rows_N], float(p_V[i]), shift_N
        self.rows_XM = rows_of(W, np.append(rows_N, i))
        self._columns = [Exact.of(column_X) for column_X in self.rows_XM.T]
        # Units do not matter to W̃ᵀy = 0: columns are scaled by powers of two, which rounds nothing.
        with np.errstate(over="ignore"):
            size_M = (np.append(self.p_N, p_V[i])[:, None] * np.abs(self.rows_XM)).max(axis=0)
            self.power_M = np.where(np.isfinite(size_M), np.frexp(size_M)[1], 0)
            self.A_NM = np.ldexp(self.rows_XM[:-1], -self.power_M)
        self._begin()

    def exists(self) -> bool:
        """Whether it is known to exist."""
        if not self._fits() or not self._looks_rounded():
            return False
        return not any(self.gap) or self._is_enclosed() or self._is_solved()

    def _begin(self) -> None:
        """The shifts as they are written, nothing mended."""
        self.y_N, self.mended_N = self.shift_N, np.zeros_like(self.shift_N)
        self._y = Exact.of(np.append(self.shift_N, -self.p_i))
        self._mended = Exact.of(np.zeros(len(self.shift_N) + 1))
        self.room_N, self.gap = self._room(), self._gap()

    def _gap(self) -> list[Fraction]:
        """e, without rounding."""
        return [column.dot(self._y) for column in self._columns]

    def _room(self) -> Array:
        """How far each shift may still be moved, either way: rather less than more."""
        slope, p_N, y_N = float(self.slope), self.p_N, self.y_N
        room_N = np.minimum(y_N + p_N, slope * p_N - y_N)
        room_N = np.minimum(room_N, float(MENDED) * p_N - np.abs(self.mended_N))
        room_N -= 2.0**-48 * (np.abs(y_N) + (1 + slope) * p_N) + TINY
        return float64(np.maximum(room_N, 0))

    def _exact_room(self, j: int) -> Fraction:
        y, mended = (x.wholes[j] * power_of_two(x.power) for x in (self._y, self._mended))
        p = Fraction(float(self.p_N[j]))
        return min(y + p, self.slope * p - y, MENDED * p - abs(mended))

    def _fits(self) -> bool:
        """Whether every shift is within its box, and no further than it may be from what was written."""
        return all(self._exact_room(j) >= 0 for j in np.flatnonzero(~(self.room_N > 0)).tolist())

    def _looks_rounded(self) -> bool:
        most = UNBALANCED * Fraction(float(np.abs(self.y_N).sum()))
        pairs = zip(self.gap, self.largest_M.tolist(), strict=True)
        return all(abs(e) <= most * Fraction(w) for e, w in pairs)

    def _move(self, change_N: Array) -> bool:
        """Add a u of float64 to y; False if that is not allowed."""
        if not np.isfinite(change_N).all():
            return False
        change = Exact.of(np.append(change_N, 0.0))
        self._y, self._mended = self._y + change, self._mended + change
        self.y_N, self.mended_N = self.y_N + change_N, self.mended_N + change_N
        self.room_N, self.gap = self._room(), self._gap()
        return self._fits()

    def _is_enclosed(self) -> bool:
        """Whether the bound of u is within the room."""
        top_T, R_TM, theta = _right_inverse(self.A_NM, self.room_N)
        if not theta < 1:
            return False
        reach_T = np.abs(R_TM).sum(axis=1) * ((1 + 1e-9) / (1 - theta))
        for _ in range(ROUNDS):
            e_M = self._scaled_gap()
            if (reach_T * (np.abs(e_M).max() + TINY) <= self.room_N[top_T]).all():
                return True
            change_N = np.zeros_like(self.y_N)
            change_N[top_T] = -(R_TM @ e_M)
            if not self._move(change_N):
                return False
        return False

    def _is_solved(self) -> bool:
        """Whether u itself is within the room."""
        if min(self.A_NM.shape) > FEW:
            return False
        self._begin()
        for _ in range(ROUNDS):
            room_N = self.room_N
            basis = _independent(self.A_NM, np.argsort(-room_N)[: np.count_nonzero(room_N)])
            rows = [[Fraction(w) for w in self.rows_XM[j].tolist()] for j in basis]
            u = combination(rows, [-e for e in self.gap])
            if u is not None and all(abs(x) <= self._exact_room(j) for x, j in zip(u, basis, strict=True)):
                return True
            weighted_MN = (self.A_NM * room_N[:, None]).T
            if not np.isfinite(weighted_MN).all():
                return False
            u_N = room_N * np.linalg.lstsq(weighted_MN, -self._scaled_gap(), rcond=1e-13)[0]
            if not self._move(u_N):
                return False
        return False

    def _scaled_gap(self) -> Array:
        """e in the units of A."""
        units = map(power_of_two, self.power_M.tolist())
        return np.array([float(e / unit) for e, unit in zip(self.gap, units, strict=True)])


def _right_inverse(A_NM: Array, room_N: Array) -> tuple[Indices, Array, float]:
    """(rows, R, θ): AᵀR = I for these rows of A, up to an error of norm θ; infinite where there is none.

    R·e is the smallest u with Aᵀu = e, as the rooms measure it.
    """
    m = A_NM.shape[1]
    top_T = np.argsort(-room_N)[: max(2000, 4 * m)]
    A_TM, room_T1 = A_NM[top_T], room_N[top_T, None]
    if len(top_T) < m or not np.isfinite(A_TM).all():
        return top_T, A_TM, np.inf
    Q_TM, upper_MM = np.linalg.qr(A_TM * room_T1)
    if not np.abs(upper_MM.diagonal()).min() > 0:
        return top_T, A_TM, np.inf
    with np.errstate(all="ignore"):
        R_TM: Array = room_T1 * solve_triangular(upper_MM, Q_TM.T, check_finite=False).T
        error_MM = np.abs(np.eye(m) - A_TM.T @ R_TM)
        error_MM += (len(top_T) + 4) * 2.0**-52 * ((np.abs(A_TM) + TINY).T @ np.abs(R_TM) + 1)
        theta = float(error_MM.sum(axis=1).max()) * (1 + 1e-9)
    return top_T, R_TM, theta if theta < 1 else np.inf


def _independent(A_NM: Array, order_N: Indices) -> list[int]:
    """Rows that no earlier ones make up, in this order: by orthogonalisation."""
    found: list[int] = []
    Q_KM = np.zeros((min(A_NM.shape), A_NM.shape[1]))
    for j in order_N.tolist():
        if len(found) == len(Q_KM):
            break
        size, Q_FM = float(np.linalg.norm(A_NM[j])), Q_KM[: len(found)]
        if not 0 < size < np.inf:
            continue
        q_M = A_NM[j] / size
        for _ in range(2):
            q_M = q_M - (Q_FM @ q_M) @ Q_FM
        if (left := float(np.linalg.norm(q_M))) > DEPENDENT:
            Q_KM[len(found)] = q_M / left
            found.append(j)
    return found
