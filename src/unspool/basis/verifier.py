"""Verify certificates of the basis-aware test in rational arithmetic, independent of the solver.

    acceptance:  Σ_{j≠i} p̂ⱼ·max(c·sⱼ, −sⱼ) < p̂ᵢ·sᵢ,   s = W̃λ                         (AcceptanceInequality)
    rejection:   there is a y′ next to y:  W̃ᵀy′ = 0,   −p̂ ≤ y′ ≤ c·p̂,   y′ᵢ = −p̂ᵢ    (Counterexample)

The floats of W, p̂, τ and the certificate are taken as exact numbers. A false certificate never passes; an
acceptance passes if and only if it is true.

Finlayson et al. 2024, eq. 3 and its dual (papers.bib: finlayson2024closing).
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

from unspool.arguments import as_int, shown
from unspool.basis.arrays import Array, Indices, as_distribution, as_float64, as_numpy
from unspool.basis.theory import Acceptance, Rejection, check_tau


class DyadicVector:
    """An exact vector of dyadic numbers xⱼ = nⱼ·2^k with arbitrary-precision integers nⱼ and one exponent k.

    Σⱼ xⱼyⱼ = 2^(k+l)·Σⱼ nⱼmⱼ
    """

    def __init__(self, mantissas: list[int], exponent: int) -> None:
        self.mantissas, self.exponent = mantissas, exponent

    @classmethod
    def from_floats(cls, x_N: Array) -> DyadicVector:
        digits_N, exponent_N = np.frexp(x_N)
        exponent = int(exponent_N[x_N != 0].min(initial=0))
        shift_N = np.where(x_N != 0, exponent_N - exponent, 0)
        whole_N = np.ldexp(digits_N, 53).astype(np.int64)
        return cls([n << k for n, k in zip(whole_N.tolist(), shift_N.tolist(), strict=True)], exponent - 53)

    def __add__(self, other: DyadicVector) -> DyadicVector:
        low, high = (self, other) if self.exponent <= other.exponent else (other, self)
        up = high.exponent - low.exponent
        return DyadicVector(
            [n + (m << up) for n, m in zip(low.mantissas, high.mantissas, strict=True)], low.exponent
        )

    def dot(self, other: DyadicVector) -> Fraction:
        total: int = sum(map(mul, self.mantissas, other.mantissas))
        return total * power_of_two(self.exponent + other.exponent)


def power_of_two(k: int) -> Fraction:
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


def solve_exactly(rows: Sequence[Sequence[Fraction]], wanted: Sequence[Fraction]) -> list[Fraction] | None:
    """x with Σₖ xₖ·rowₖ = wanted, or None if there is none; x = 0 for rows that depend on earlier ones.

    Fraction-free elimination: every division is exact, because the entries are minors.
    Bareiss 1968. papers.bib: bareiss1968sylvester
    """
    left: list[list[int]] = []  # one equation per column, times the least number that makes it integer
    for column in zip(*rows, wanted, strict=True):
        unit = lcm(*(x.denominator for x in column))
        left.append([x.numerator * (unit // x.denominator) for x in column])
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


BLOCK = 1024
# The absolute error that underflow can add to a product, a sum or a scaled λ.
UNDERFLOW = 2.0**-1022


class AcceptanceInequality:
    """The inequality that an acceptance claims; always decided.

        Σ_{j≠i} p̂ⱼ·max(τ·sⱼ, −(1−τ)·sⱼ) − (1−τ)·p̂ᵢ·sᵢ < 0,   s = W̃λ

    This is f(λ) < p̂ᵢ·sᵢ times 1 − τ, which avoids a division; only the last term can be negative, so sᵢ >
    0 follows. The sum is computed in float64 with a rounding bound per row ((m+4)·2⁻⁵²·Σ|w||λ| for m
    products). If that leaves the sign open, the rows with the largest bounds are summed in rational
    arithmetic: 64, then 1,024, then all.

    Finlayson et al. 2024, the dual of eq. 3 (papers.bib: finlayson2024closing).
    """

    def __init__(self, W: Any, p_V: Array, tau: float, i: int, dual_M: Array) -> None:
        self.W, self.p_V, self.tau, self.i, self.dual_M = W, p_V, tau, i, dual_M

    def holds(self) -> bool:
        if not np.isfinite(self.dual_M).all() or not self.dual_M.any():
            return False
        exponent = int(np.frexp(np.abs(self.dual_M).max())[1])
        parts = zip(*self._terms_in_float64(np.ldexp(self.dual_M, -exponent)), strict=True)
        term_V, error_V = (np.concatenate(part) for part in parts)
        order_V = np.argsort(-error_V)
        for n in (0, 64, 1024, len(order_V)):
            error = fsum(error_V[order_V[n:]]) * (1 + 1e-9)
            if error == inf:
                continue
            exact = self._sum_exactly(order_V[:n]) / power_of_two(exponent)
            total = exact + Fraction(fsum(term_V[order_V[n:]]))
            if abs(total) > error:
                break
        return total < 0

    def _terms_in_float64(self, lam_M: Array) -> Iterator[tuple[Array, Array]]:
        """The terms, block by block, and their rounding bounds; infinite if a term is not finite."""
        unit, size_M = (len(lam_M) + 4) * 2.0**-52, np.abs(lam_M) + UNDERFLOW
        for block, W_NM in enumerate(extended_blocks(self.W)):
            start = block * BLOCK
            p_N = self.p_V[start : start + BLOCK]
            with np.errstate(over="ignore", invalid="ignore"):
                s_N = W_NM @ lam_M
                fall_N = -(1 - self.tau) * s_N
                rise_N = np.maximum(self.tau * s_N, fall_N)
                if start <= self.i < start + BLOCK:
                    rise_N[self.i - start] = fall_N[self.i - start]
                term_N = p_N * rise_N
                error_N = p_N * (unit * (np.abs(W_NM) @ size_M)) + 2.0**-50 * np.abs(term_N) + UNDERFLOW
            known_N = np.isfinite(term_N) & np.isfinite(error_N)
            yield np.where(known_N, term_N, 0.0), np.where(known_N, error_N, inf)

    def _sum_exactly(self, rows_N: Indices) -> Fraction:
        tau, dual, total = Fraction(self.tau), DyadicVector.from_floats(self.dual_M), Fraction(0)
        for start in range(0, len(rows_N), BLOCK):
            part_N = rows_N[start : start + BLOCK]
            for j, w_M in zip(part_N.tolist(), extended_rows(self.W, part_N), strict=True):
                s = DyadicVector.from_floats(w_M).dot(dual)
                fall = (tau - 1) * s
                total += Fraction(float(self.p_V[j])) * (fall if j == self.i else max(tau * s, fall))
        return total


def extended_rows(W: Any, which: slice | Indices) -> Array:
    """Rows of W̃ = [W, 1] in float64."""
    rows_ND = as_float64(W[which])
    if not np.isfinite(rows_ND).all():
        raise ValueError("W contains NaN or infinite entries")
    return np.column_stack([rows_ND, np.ones(len(rows_ND))])


def extended_blocks(W: Any) -> Iterator[Array]:
    for start in range(0, W.shape[0], BLOCK):
        yield extended_rows(W, slice(start, start + BLOCK))


MAX_RESIDUAL = Fraction(1, 10**9)
MAX_CORRECTION = Fraction(1, 10**6)
ROUNDS = 3
# Up to this many rows or columns are eliminated exactly; numbers grow by 16 digits with each.
MAX_ELIMINATION_SIZE = 32
# A row counts as dependent if orthogonalisation leaves less than this share of it.
RANK_TOLERANCE = 1e-11


class Counterexample:
    """The counterexample that a rejection claims: an exactly balanced y′ next to the y of the certificate.

        W̃ᵀy′ = 0,   −p̂ ≤ y′ ≤ c·p̂,   y′ᵢ = −p̂ᵢ,   |y′ − y| ≤ 10⁻⁶·p̂

    A float64 y rarely balances exactly. Its exact residual e = W̃ᵀy must be as small as rounding (10⁻⁹ of
    Σ|y|·max|w| in each column of W̃), and a correction u with W̃ᵀ(y + u) = 0 must provably exist within the
    slack of each yⱼ in its box. It is enclosed: for A, the rows with the most slack, and any matrix R,

        E = I − AᵀR,  ‖E‖ ≤ θ < 1   ⇒   u = −R(AᵀR)⁻¹e  has  Aᵀu = −e  and  |u| ≤ |R|·‖e‖/(1 − θ)

    with R from a QR decomposition in float64, and θ a bound on the norm of E that includes rounding. If
    this fails, because columns are dependent or slacks differ by many orders of magnitude, and there are
    few rows or columns, u is computed by exact elimination over independent rows, those with the most slack
    first. In both cases a float64 correction first reduces the residual.

    Finlayson et al. 2024, eq. 3; Rump 2010 (verified solutions of linear systems by an approximate inverse).
    papers.bib: finlayson2024closing, rump2010verification
    """

    def __init__(self, proof: Rejection, W: Any, max_abs_M: Array, p_V: Array, slope: Fraction) -> None:
        i = proof.token
        used_N = (proof.rows_N != i) & (proof.shift_N != 0)  # the token's own shift is always −p̂ᵢ
        rows_N, shift_N = proof.rows_N[used_N], proof.shift_N[used_N]
        self.slope, self.max_abs_M = slope, max_abs_M
        self.p_N, self.p_i, self.shift_N = p_V[rows_N], float(p_V[i]), shift_N
        self.rows_XM = extended_rows(W, np.append(rows_N, i))
        self._columns = [DyadicVector.from_floats(column_X) for column_X in self.rows_XM.T]
        # Scaling columns by powers of two does not round, and W̃ᵀy = 0 does not depend on it.
        with np.errstate(over="ignore"):
            size_M = (np.append(self.p_N, p_V[i])[:, None] * np.abs(self.rows_XM)).max(axis=0)
            self.exponent_M = np.where(np.isfinite(size_M), np.frexp(size_M)[1], 0)
            self.A_NM = np.ldexp(self.rows_XM[:-1], -self.exponent_M)
        self._reset()

    def exists(self) -> bool:
        most = MAX_RESIDUAL * Fraction(float(np.abs(self.y_N).sum()))
        limits = zip(self.residual, self.max_abs_M.tolist(), strict=True)
        if not self._is_in_box() or any(abs(e) > most * Fraction(w) for e, w in limits):
            return False
        return not any(self.residual) or self._verify_by_enclosure() or self._verify_by_elimination()

    def _reset(self) -> None:
        """Start from the shifts of the certificate, without corrections."""
        self.y_N, self.correction_N = self.shift_N, np.zeros_like(self.shift_N)
        self._y = DyadicVector.from_floats(np.append(self.shift_N, -self.p_i))
        self._correction = DyadicVector.from_floats(np.zeros(len(self.shift_N) + 1))
        self._update()

    def _update(self) -> None:
        """Compute the slack of y and its exact residual e."""
        self.slack_N, self.residual = self._compute_slack(), [column.dot(self._y) for column in self._columns]

    def _compute_slack(self) -> Array:
        """A lower bound on how far each shift may move in both directions."""
        slope, p_N, y_N = float(self.slope), self.p_N, self.y_N
        slack_N = np.minimum(y_N + p_N, slope * p_N - y_N)
        slack_N = np.minimum(slack_N, float(MAX_CORRECTION) * p_N - np.abs(self.correction_N))
        slack_N -= 2.0**-48 * (np.abs(y_N) + (1 + slope) * p_N) + UNDERFLOW
        return as_float64(np.maximum(slack_N, 0))

    def _exact_slack(self, j: int) -> Fraction:
        y, correction = (x.mantissas[j] * power_of_two(x.exponent) for x in (self._y, self._correction))
        p = Fraction(float(self.p_N[j]))
        return min(y + p, self.slope * p - y, MAX_CORRECTION * p - abs(correction))

    def _is_in_box(self) -> bool:
        """True if every shift is within its box and its limit of correction."""
        return all(self._exact_slack(j) >= 0 for j in np.flatnonzero(~(self.slack_N > 0)).tolist())

    def _apply_correction(self, change_N: Array) -> bool:
        """Add a float64 correction u to y; False if y leaves its box."""
        if not np.isfinite(change_N).all():
            return False
        change = DyadicVector.from_floats(np.append(change_N, 0.0))
        self._y, self._correction = self._y + change, self._correction + change
        self.y_N, self.correction_N = self.y_N + change_N, self.correction_N + change_N
        self._update()
        return self._is_in_box()

    def _verify_by_enclosure(self) -> bool:
        """True if the bound on u is within the slack."""
        top_T, R_TM, theta = _right_inverse(self.A_NM, self.slack_N)
        if not theta < 1:
            return False
        reach_T = np.abs(R_TM).sum(axis=1) * ((1 + 1e-9) / (1 - theta))
        for _ in range(ROUNDS):
            e_M = self._scaled_residual()
            if (reach_T * (np.abs(e_M).max() + UNDERFLOW) <= self.slack_N[top_T]).all():
                return True
            change_N = np.zeros_like(self.y_N)
            change_N[top_T] = -(R_TM @ e_M)
            if not self._apply_correction(change_N):
                return False
        return False

    def _verify_by_elimination(self) -> bool:
        """True if the exact u is within the slack."""
        if min(self.A_NM.shape) > MAX_ELIMINATION_SIZE:
            return False
        self._reset()
        for _ in range(ROUNDS):
            slack_N = self.slack_N
            basis = _independent_rows(self.A_NM, np.argsort(-slack_N)[: np.count_nonzero(slack_N)])
            rows = [[Fraction(w) for w in self.rows_XM[j].tolist()] for j in basis]
            u = solve_exactly(rows, [-e for e in self.residual])
            if u is not None and all(abs(x) <= self._exact_slack(j) for x, j in zip(u, basis, strict=True)):
                return True
            weighted_MN = (self.A_NM * slack_N[:, None]).T
            if not np.isfinite(weighted_MN).all():
                return False
            u_N = slack_N * np.linalg.lstsq(weighted_MN, -self._scaled_residual(), rcond=1e-13)[0]
            if not self._apply_correction(u_N):
                return False
        return False

    def _scaled_residual(self) -> Array:
        """e in the scaling of A."""
        units = map(power_of_two, self.exponent_M.tolist())
        return np.array([float(e / unit) for e, unit in zip(self.residual, units, strict=True)])


def _right_inverse(A_NM: Array, slack_N: Array) -> tuple[Indices, Array, float]:
    """(rows, R, θ): AᵀR = I for these rows of A up to an error of norm θ; θ is infinite if there is no R.

    R·e is the smallest u with Aᵀu = e, measured relative to the slack.
    """
    m = A_NM.shape[1]
    top_T = np.argsort(-slack_N)[: max(2000, 4 * m)]
    A_TM, slack_T1 = A_NM[top_T], slack_N[top_T, None]
    if len(top_T) < m or not np.isfinite(A_TM).all():
        return top_T, A_TM, np.inf
    Q_TM, upper_MM = np.linalg.qr(A_TM * slack_T1)
    if not np.abs(upper_MM.diagonal()).min() > 0:
        return top_T, A_TM, np.inf
    with np.errstate(all="ignore"):
        R_TM: Array = slack_T1 * solve_triangular(upper_MM, Q_TM.T, check_finite=False).T
        error_MM = np.abs(np.eye(m) - A_TM.T @ R_TM)
        error_MM += (len(top_T) + 4) * 2.0**-52 * ((np.abs(A_TM) + UNDERFLOW).T @ np.abs(R_TM) + 1)
        theta = float(error_MM.sum(axis=1).max()) * (1 + 1e-9)
    return top_T, R_TM, theta if theta < 1 else np.inf


def _independent_rows(A_NM: Array, order_N: Indices) -> list[int]:
    """Rows that are linearly independent of earlier ones, in this order, by orthogonalisation."""
    independent: list[int] = []
    Q_KM = np.zeros((min(A_NM.shape), A_NM.shape[1]))
    for j in order_N.tolist():
        if len(independent) == len(Q_KM):
            break
        size, Q_FM = float(np.linalg.norm(A_NM[j])), Q_KM[: len(independent)]
        if not 0 < size < np.inf:
            continue
        q_M = A_NM[j] / size
        for _ in range(2):
            q_M = q_M - (Q_FM @ q_M) @ Q_FM
        if (left := float(np.linalg.norm(q_M))) > RANK_TOLERANCE:
            Q_KM[len(independent)] = q_M / left
            independent.append(j)
    return independent


def verify_certificate(certificate: Acceptance | Rejection, W: Any, p: ArrayLike, tau: float) -> bool:
    """True if the certificate is valid for W (V, r), the matrix `BasisTest.weight` of the test."""
    if not isinstance(certificate, Acceptance | Rejection):
        raise TypeError(f"certificate is {shown(certificate)}; expected an Acceptance or a Rejection")
    W = W if hasattr(W, "shape") else as_numpy(W)
    if len(W.shape) != 2:
        raise ValueError(f"W has shape {tuple(W.shape)}; expected (vocabulary, rank), one row per token")
    p_V, tau = as_distribution(p, W.shape[0]), check_tau(tau)
    i = as_int("token", certificate.token, at_least=0, at_most=len(p_V) - 1)
    if isinstance(certificate, Acceptance):
        dual_M = as_float64(certificate.dual_M)
        if dual_M.shape != (W.shape[1] + 1,):
            raise ValueError(
                f"λ has shape {dual_M.shape}, but W̃ = [W, 1] has {W.shape[1] + 1} columns: pass "
                "BasisTest.weight"
            )
        return AcceptanceInequality(W, p_V, tau, i, dual_M).holds()
    proof = _read_shift(certificate, len(p_V))
    if len(np.unique(proof.rows_N)) < len(proof.rows_N) or not np.isfinite(proof.shift_N).all():
        return False
    max_abs_M = np.max([np.abs(part).max(axis=0) for part in extended_blocks(W)], axis=0)
    return Counterexample(proof, W, max_abs_M, p_V, Fraction(tau) / (1 - Fraction(tau))).exists()


def _read_shift(certificate: Rejection, vocabulary: int) -> Rejection:
    rows_N, shift_N = as_numpy(certificate.rows_N), as_float64(certificate.shift_N)
    numbers = rows_N.dtype.kind in "iu" or not rows_N.size
    if rows_N.ndim != 1 or rows_N.shape != shift_N.shape or not numbers:
        raise ValueError(
            f"the certificate has {rows_N.dtype} rows of shape {rows_N.shape} and shifts of shape "
            f"{shift_N.shape}; expected one row index per shift"
        )
    if rows_N.size and not 0 <= rows_N.min() <= rows_N.max() < vocabulary:
        raise ValueError(f"the certificate names rows outside 0 … {vocabulary - 1}")
    return Rejection(certificate.token, rows_N.astype(np.intp), shift_N)
