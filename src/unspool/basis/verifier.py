"""Verify a certificate from nothing but its definition, without a line of the solver's and without trust.

    acceptance:  Σ_{j≠i} p̂ⱼ·max(c·sⱼ, −sⱼ) < p̂ᵢ·sᵢ,   s = W̃λ                              (inequality.py)
    rejection:   there is a y′ next to y:  W̃ᵀy′ = 0,   −p̂ ≤ y′ ≤ c·p̂,   y′ᵢ = −p̂ᵢ      (counterexample.py)

The numbers of W, p̂, τ and of the certificate are taken as they are, and true is what is true in rational
arithmetic. Nothing that is false passes, whatever the certificate says; an acceptance passes if and only if
it is true.

Finlayson et al. 2024, eq. 3 and its dual.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import fsum, inf, lcm
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from unspool.basis.arrays import Array, Indices, as_numpy, float64, probabilities, shown, whole
from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.theory import checked_tau


class Exact:
    """Numbers n·2^k with one k for all: `Exact.of(floats)`.

    Arithmetic without rounding: a float is a whole number times a power of two, and so are sums of products.

        xⱼ = nⱼ·2^k      Σⱼ xⱼyⱼ = 2^(k+l)·Σⱼ nⱼmⱼ      Σₖ xₖ·rowₖ = wanted, solved by elimination

    Whole numbers are Python's own, which have as many digits as they need: nothing overflows, underflows or
    is rounded.
    """

    def __init__(self, wholes: list[int], power: int) -> None:
        self.wholes, self.power = wholes, power

    @classmethod
    def of(cls, x_N: Array) -> Exact:
        """The floats, exactly."""
        digits_N, power_N = np.frexp(x_N)
        power = int(power_N[x_N != 0].min(initial=0))
        shift_N = np.where(x_N != 0, power_N - power, 0)
        whole_N = np.ldexp(digits_N, 53).astype(np.int64)
        return cls([n << k for n, k in zip(whole_N.tolist(), shift_N.tolist(), strict=True)], power - 53)

    def __add__(self, other: Exact) -> Exact:
        low, high = (self, other) if self.power <= other.power else (other, self)
        up = high.power - low.power
        return Exact([n + (m << up) for n, m in zip(low.wholes, high.wholes, strict=True)], low.power)

    def dot(self, other: Exact) -> Fraction:
        """Σⱼ xⱼyⱼ."""
        whole: int = sum(map(mul, self.wholes, other.wholes))
        return whole * power_of_two(self.power + other.power)

    def fractions(self) -> list[Fraction]:
        """The numbers, one by one."""
        unit = power_of_two(self.power)
        return [n * unit for n in self.wholes]


def power_of_two(k: int) -> Fraction:
    """2^k."""
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


def combination(rows: Sequence[Sequence[Fraction]], wanted: Sequence[Fraction]) -> list[Fraction] | None:
    """x with Σₖ xₖ·rowₖ = wanted, or None where there is none; a row that others make up has x = 0.

    Elimination in whole numbers: every division comes out even, since what is divided are minors.
    Bareiss 1968. papers.bib: bareiss1968sylvester
    """
    left = [_wholes(equation) for equation in zip(*rows, wanted, strict=True)]  # one for each column
    known: list[tuple[int, list[int]]] = []
    before = 1
    for k in range(len(rows)):
        at = next((at for at, equation in enumerate(left) if equation[k]), None)
        if at is None:
            continue
        first = left.pop(at)
        pivot, rest = first[k], first[k + 1 :]
        for equation in left:
            factor = equation[k]
            pairs = zip(equation[k + 1 :], rest, strict=True)
            equation[k + 1 :] = [(pivot * x - factor * y) // before for x, y in pairs]
        known.append((k, first))
        before = pivot
    if any(equation[-1] for equation in left):
        return None
    x = [Fraction(0)] * len(rows)
    for k, equation in reversed(known):
        others = sum((a * x[j] for j, a in enumerate(equation[k + 1 : -1], k + 1) if x[j]), Fraction(0))
        x[k] = (equation[-1] - others) / equation[k]
    return x


def _wholes(equation: Sequence[Fraction]) -> list[int]:
    """The equation times the least number that leaves no fraction in it."""
    unit = lcm(*(x.denominator for x in equation))
    return [x.numerator * (unit // x.denominator) for x in equation]


BLOCK = 1024
# Underflow can make a product, a sum or a scaled λ wrong by this much beside what is relative.
TINY = 2.0**-1022


class Inequality:
    """One acceptance.

    An acceptance is an inequality: true or false, and decided either way.

        Σ_{j≠i} p̂ⱼ·max(τ·sⱼ, −(1−τ)·sⱼ) − (1−τ)·p̂ᵢ·sᵢ < 0,   s = W̃λ

    This is f(λ) < p̂ᵢ·sᵢ, times 1 − τ, so that there is nothing to divide by; no term but the last can be
    negative, so that sᵢ > 0 follows. It is added up in float64, with the most that rounding can amount to in
    each row (componentwise: (m+4)·2⁻⁵²·Σ|w||λ| for m products). Where this leaves the sign open, the rows
    with the largest share in it are added up in rational arithmetic: a few, then more, in the end all.

    Finlayson et al. 2024, the dual of eq. 3.
    papers.bib: finlayson2024closing
    """

    def __init__(self, W: Any, p_V: Array, tau: float, i: int, slopes_M: Array) -> None:
        self.W, self.p_V, self.tau, self.i, self.slopes_M = W, p_V, tau, i, slopes_M

    def holds(self) -> bool:
        """Whether it is true."""
        if not np.isfinite(self.slopes_M).all() or not self.slopes_M.any():
            return False
        power = int(np.frexp(np.abs(self.slopes_M).max())[1])
        parts = zip(*self._rounded(np.ldexp(self.slopes_M, -power)), strict=True)
        term_V, doubt_V = (np.concatenate(part) for part in parts)
        order_V = np.argsort(-doubt_V)
        for n in (0, 64, 1024, len(order_V)):
            doubt = fsum(doubt_V[order_V[n:]]) * (1 + 1e-9)
            if doubt == inf:
                continue
            total = self._exactly(order_V[:n]) / power_of_two(power) + Fraction(fsum(term_V[order_V[n:]]))
            if abs(total) > doubt:
                break
        return total < 0

    def _rounded(self, lam_M: Array) -> Iterator[tuple[Array, Array]]:
        """The terms, block by block, and how wrong each may be; infinitely so where it is no number."""
        unit, size_M = (len(lam_M) + 4) * 2.0**-52, np.abs(lam_M) + TINY
        for block, W_NM in enumerate(blocks_of(self.W)):
            start = block * BLOCK
            p_N = self.p_V[start : start + BLOCK]
            with np.errstate(over="ignore", invalid="ignore"):
                s_N = W_NM @ lam_M
                fall_N = -(1 - self.tau) * s_N
                rise_N = np.maximum(self.tau * s_N, fall_N)
                if start <= self.i < start + BLOCK:
                    rise_N[self.i - start] = fall_N[self.i - start]
                term_N = p_N * rise_N
                doubt_N = p_N * (unit * (np.abs(W_NM) @ size_M)) + 2.0**-50 * np.abs(term_N) + TINY
            known_N = np.isfinite(term_N) & np.isfinite(doubt_N)
            yield np.where(known_N, term_N, 0.0), np.where(known_N, doubt_N, inf)

    def _exactly(self, rows_N: Indices) -> Fraction:
        """The terms of these rows together."""
        tau, slopes, total = Fraction(self.tau), Exact.of(self.slopes_M), Fraction(0)
        for start in range(0, len(rows_N), BLOCK):
            part_N = rows_N[start : start + BLOCK]
            for j, w_M in zip(part_N.tolist(), rows_of(self.W, part_N), strict=True):
                s = Exact.of(w_M).dot(slopes)
                fall = (tau - 1) * s
                total += Fraction(float(self.p_V[j])) * (fall if j == self.i else max(tau * s, fall))
        return total


def rows_of(W: Any, which: slice | Indices) -> Array:
    """Rows of W̃ = [W, 1] in float64."""
    rows_ND = float64(W[which])
    if not np.isfinite(rows_ND).all():
        raise ValueError("W contains NaN or infinite entries; nothing can be proven about it.")
    return np.column_stack([rows_ND, np.ones(len(rows_ND))])


def blocks_of(W: Any) -> Iterator[Array]:
    """All rows of W̃, block by block."""
    for start in range(0, W.shape[0], BLOCK):
        yield rows_of(W, slice(start, start + BLOCK))


UNBALANCED = Fraction(1, 10**9)
MENDED = Fraction(1, 10**6)
ROUNDS = 3
# Up to so many rows or columns are eliminated exactly: numbers grow by 16 digits with each.
FEW = 32
# A row that others make up to this much is not among the independent ones.
DEPENDENT = 1e-11


class Counterexample:
    """One rejection: shifts y of some rows, and −p̂ᵢ of the token's own, which comes last.

    A rejection is a counterexample: a distribution that balances exactly, next to the one written down.

        W̃ᵀy′ = 0,   −p̂ ≤ y′ ≤ c·p̂,   y′ᵢ = −p̂ᵢ,   |y′ − y| ≤ 10⁻⁶·p̂

    y in float64 can hardly balance exactly. Its gap e = W̃ᵀy, computed without rounding, must look like
    rounding (10⁻⁹ of Σ|y|·max|w| in each column of W̃), and a change u of y must be known to exist that
    closes it, within the room that each yⱼ has in its box. It is enclosed: for A, the rows with most room,
    and R any matrix at all,

        E = I − AᵀR,  ‖E‖ ≤ θ < 1   ⇒   u = −R(AᵀR)⁻¹e  has  Aᵀu = −e  and  |u| ≤ |R|·‖e‖/(1 − θ)

    with R from a QR decomposition in float64, and θ the norm of E as float64 finds it and of all that
    rounding can have done to it. Where this does not do, since columns depend on each other or rooms differ
    by many orders of magnitude, and rows or columns are few, u is computed by exact elimination over rows
    that are independent, those with most room first. Either way, a u of float64 is added to y first where the
    gap is larger than it need be.

    Finlayson et al. 2024, eq. 3; Rump 2010 (verified solutions of linear systems by an approximate inverse).
    papers.bib: finlayson2024closing, rump2010verification
    """

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


def check(certificate: Acceptance | Rejection, W: Any, p: ArrayLike, tau: float) -> bool:
    """Whether the certificate proves what it says, for the rows W (V, r) of the test: `BasisTest.weight`."""
    if not isinstance(certificate, Acceptance | Rejection):
        raise TypeError(f"The certificate is {shown(certificate)}; expected an Acceptance or a Rejection.")
    W = W if hasattr(W, "shape") else as_numpy(W)
    if len(W.shape) != 2:
        raise ValueError(f"W has shape {tuple(W.shape)}; expected (vocabulary, rank), one row per token.")
    p_V, tau, i = probabilities(p, W.shape[0]), checked_tau(tau), whole(certificate.token)
    if i is None or not 0 <= i < len(p_V):
        raise ValueError(
            f"The certificate is about token {shown(certificate.token)}, and W has rows 0 … {len(p_V) - 1}."
        )
    if isinstance(certificate, Acceptance):
        return Inequality(W, p_V, tau, i, _slopes(certificate, W.shape[1] + 1)).holds()
    proof = _shifts(certificate, len(p_V))
    if len(np.unique(proof.rows_N)) < len(proof.rows_N) or not np.isfinite(proof.shift_N).all():
        return False
    largest_M = np.max([np.abs(part).max(axis=0) for part in blocks_of(W)], axis=0)
    return Counterexample(proof, W, largest_M, p_V, Fraction(tau) / (1 - Fraction(tau))).exists()


def _slopes(certificate: Acceptance, columns: int) -> Array:
    slopes_M = float64(certificate.slopes_M)
    if slopes_M.shape != (columns,):
        raise ValueError(
            f"λ has shape {slopes_M.shape}, and W̃ = [W, 1] has {columns} columns: give the rows of the test "
            f"that it comes from, BasisTest.weight."
        )
    return slopes_M


def _shifts(certificate: Rejection, vocabulary: int) -> Rejection:
    rows_N, shift_N = as_numpy(certificate.rows_N), float64(certificate.shift_N)
    numbers = rows_N.dtype.kind in "iu" or not rows_N.size
    if rows_N.ndim != 1 or rows_N.shape != shift_N.shape or not numbers:
        raise ValueError(
            f"The certificate has rows of shape {rows_N.shape} and type {rows_N.dtype}, and shifts of shape "
            f"{shift_N.shape}; expected the number of a row of W for each shift."
        )
    if rows_N.size and not 0 <= rows_N.min() <= rows_N.max() < vocabulary:
        raise ValueError(f"The certificate names rows that W does not have: it has 0 … {vocabulary - 1}.")
    return Rejection(certificate.token, rows_N.astype(np.intp), shift_N)


# Whether a certificate is true: decided in rational arithmetic, without a line of the solver's.
