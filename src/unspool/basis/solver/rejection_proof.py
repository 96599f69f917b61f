"""Prove rejection: repair approximate multipliers y until they balance the token in float64.

    Σ_{j≠i} yⱼ w̃ⱼ = p̂ᵢ w̃ᵢ,  −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ   ⇒   p = p̂ + y (and pᵢ = 0) has W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ (1+c)p̂

The search finds y in float32. The residual e = t·w̃ᵢ − Σ yⱼw̃ⱼ is computed in float64 on W and reduced by
repeated changes dyⱼ = ωⱼ·xⱼ·P·Bᵀe of the head's multipliers; t absorbs the token's own component. Each
change must at least halve the residual, so all further changes together are less than twice the next one.
The box is shrunk by that amount and a margin of 10⁻⁶ before y is checked against it. If the rows do not
span every direction (a huge row of almost no probability may be alone in one), a residual may look small
and yet be irreparable; then the certificate is verified in rational arithmetic.

The linear program: Finlayson et al. 2024, eq. 3 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from unspool.basis.arrays import Array, Indices, as_float64
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import LewisMetric
from unspool.basis.solver.whitening import WhitenedMatrix
from unspool.basis.theory import Rejection
from unspool.basis.verifier import Counterexample
from unspool.basis.work import rejection_cost, verification_cost

MARGIN = 1e-6
MAX_REPAIRS = 12
# Residuals relative to t·xᵢ: repairs stop below the first bound; above the second the proof fails.
STOP_RESIDUAL = 1e-10
MAX_RESIDUAL = 1e-9
# The proof also fails if the next change of a multiplier would exceed this share of p̂.
MAX_REMAINING_REPAIR = 1e-7
# Up to this many rows × unknowns², a float64 pseudo-inverse replaces an inaccurate float32 factor.
MAX_PINV_COST = 2e7
# Up to this many entries of W̃ are cached in float64.
MAX_CACHED_ENTRIES = 500_000


@dataclass(frozen=True, eq=False)
class FixedMultipliers:
    """Fixed multipliers of tokens outside the head, within their box; one column per candidate."""

    tokens_T: Indices
    y_TQ: Array
    """Scaled by κ."""
    sum_MQ: Array
    """Σ yⱼw̃ⱼ, in float64."""

    def keep_columns(self, columns: Indices) -> FixedMultipliers:
        return FixedMultipliers(self.tokens_T, self.y_TQ[:, columns], self.sum_MQ[:, columns])


def fix_multipliers(whitened: WhitenedMatrix, tokens_T: Indices, y_TQ: Array) -> FixedMultipliers:
    """Fixed multipliers with their sum Σ yⱼw̃ⱼ."""
    return FixedMultipliers(tokens_T, y_TQ, whitened.combine(y_TQ, tokens_T))


def verify_exactly(proof: Rejection, whitened: WhitenedMatrix, dist: Distribution, slope: Fraction) -> bool:
    """Verify a rejection in rational arithmetic, for cases that rounding could decide."""
    return Counterexample(proof, whitened.weight, whitened.max_abs_M, dist.p, slope).exists()


class MultiplierRepair:
    """Repairs multipliers of the head, on the rows of one metric."""

    def __init__(self, whitened: WhitenedMatrix, dist: Distribution, metric: LewisMetric) -> None:
        self.whitened, self.dist, self.metric = whitened, dist, metric
        n = metric.n_hard + len(metric.rows.tokens_S)
        self.tokens_N: Indices = dist.order_N[:n]
        self.mass_N: Array = dist.head_N[:n] * dist.kappa
        self._is_small = n * whitened.X_VK.shape[1] ** 2 <= MAX_PINV_COST

    @cached_property
    def cost(self) -> float:
        count = rejection_cost if self.metric.is_full_rank else verification_cost
        return count(len(self.tokens_N), self.whitened.X_VK.shape[1])

    @cached_property
    def _rows_NM(self) -> Array | None:
        """The rows of W̃, cached if they are small enough; every repair needs them."""
        is_small = len(self.tokens_N) * self.whitened.m <= MAX_CACHED_ENTRIES
        return self.whitened.rows(self.tokens_N) if is_small else None

    @cached_property
    def _root_N1(self) -> Array:
        return np.sqrt(np.maximum(self.mass_N, 1.0) * self.mass_N)[:, None]

    @cached_property
    def _inverse_NK(self) -> Array:
        """The pseudo-inverse of (√Ω·X)ᵀ in float64, for metrics that float32 cannot represent."""
        X_NK = self.whitened.rows(self.tokens_N) @ self.whitened.basis_MK
        return as_float64(np.linalg.pinv((self._root_N1 * X_NK).T, rcond=1e-13))

    def prove(
        self, y_NQ: Array, t_Q: Array, tokens_Q: Indices, slope: float, tail: FixedMultipliers | None = None
    ) -> tuple[list[Rejection | None], Array]:
        """Certificates (or None) from approximate multipliers of the head, and lower bounds on F_i(c).

        `tail` has the fixed multipliers of other tokens. All multipliers are scaled by κ.
        """
        dist = self.dist
        own_mass_Q = dist.p[tokens_Q] * dist.kappa
        y_NQ, t_Q, remaining_Q = self._repair_until_exact(y_NQ, t_Q, tokens_Q, tail)
        box_scale_Q = (np.maximum(y_NQ / slope, -y_NQ) / self.mass_N[:, None]).max(axis=0)
        if tail is not None:
            box_scale_Q = np.maximum(box_scale_Q, 1.0)
        lower_Q = np.maximum(t_Q, 0.0) / (box_scale_Q + 2 * remaining_Q / min(1.0, slope) + MARGIN)
        certificates: list[Rejection | None] = [None] * len(tokens_Q)
        for q in np.flatnonzero(lower_Q > own_mass_Q):
            scale = own_mass_Q[q] / (t_Q[q] * dist.kappa)
            rows_N, shift_N = self.tokens_N, y_NQ[:, q] * scale
            if tail is not None:
                rows_N = np.concatenate([rows_N, tail.tokens_T])
                shift_N = np.concatenate([shift_N, tail.y_TQ[:, q] * scale])
            proof = Rejection(int(tokens_Q[q]), rows_N, shift_N)
            if self.metric.is_full_rank or verify_exactly(proof, self.whitened, dist, Fraction(slope)):
                certificates[q] = proof
            else:
                lower_Q[q] = 0
        return certificates, lower_Q / dist.kappa

    def _repair_until_exact(
        self, y_NQ: Array, t_Q: Array, tokens_Q: Indices, tail: FixedMultipliers | None
    ) -> tuple[Array, Array, Array]:
        """Multipliers of the head with Σ yⱼw̃ⱼ ≈ t·w̃ᵢ, t, and the size of the next change relative to p̂."""
        whitened = self.whitened
        y_NQ = y_NQ.copy()
        own_Q = self.dist.ranks(tokens_Q)
        columns = np.flatnonzero(own_Q < len(y_NQ))
        own = (own_Q[columns], columns)
        y_NQ[own] = 0
        wanted_MQ = whitened.rows(tokens_Q).T
        fixed_MQ = 0.0 if tail is None else tail.sum_MQ
        scale_Q = np.abs(whitened.basis_MK.T @ wanted_MQ).max(axis=0)
        t_Q, previous_Q, exact = t_Q.copy(), np.full(len(t_Q), np.inf), False
        for turn in range(MAX_REPAIRS):
            rows_NM = self._rows_NM
            sum_MQ = whitened.combine(y_NQ, self.tokens_N) if rows_NM is None else rows_NM.T @ y_NQ
            error_KQ = whitened.basis_MK.T @ (t_Q * wanted_MQ - fixed_MQ - sum_MQ)
            with np.errstate(divide="ignore", invalid="ignore"):
                residual_Q = np.abs(error_KQ).max(axis=0) / (np.maximum(t_Q, 0) * scale_Q)
            change_NQ = self._compute_change(error_KQ, exact)
            improves_Q = (residual_Q > STOP_RESIDUAL) & (residual_Q < previous_Q / 2)
            if not improves_Q.any() and not exact and self._is_small and (residual_Q > STOP_RESIDUAL).any():
                exact, previous_Q = True, np.full(len(t_Q), np.inf)
                continue
            if turn == MAX_REPAIRS - 1 or not improves_Q.any():
                break
            y_NQ += change_NQ * improves_Q
            t_Q[columns] -= (change_NQ * improves_Q)[own]
            y_NQ[own] = 0
            previous_Q = np.where(improves_Q, residual_Q, previous_Q)
        change_NQ[own] = 0
        remaining_Q = (np.abs(change_NQ) / self.mass_N[:, None]).max(axis=0)
        is_exact_Q = (residual_Q <= MAX_RESIDUAL) & (remaining_Q <= MAX_REMAINING_REPAIR)
        return y_NQ, t_Q, np.where(is_exact_Q, remaining_Q, np.inf)

    def _compute_change(self, error_KQ: Array, exact: bool) -> Array:
        """The smallest change dy in the ω-norm with Σ dyⱼxⱼ ≈ error."""
        if exact:
            return self._root_N1 * (self._inverse_NK @ error_KQ)
        size_Q = np.maximum(np.abs(error_KQ).max(axis=0), 1e-300)
        unit_KQ, rows = (error_KQ / size_Q).astype(np.float32), self.metric.rows
        soft_SQ = rows.omega_S[:, None] * (rows.X_SK @ self.metric.solve(unit_KQ))
        change_NQ: Array = as_float64(np.concatenate([self.metric.solve_HK @ unit_KQ, soft_SQ])) * size_Q
        return change_NQ
