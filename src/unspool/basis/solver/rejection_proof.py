"""Prove rejection: multipliers y that balance the token, made exact in float64.

    Σ_{j≠i} yⱼ w̃ⱼ = p̂ᵢ w̃ᵢ,   −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ     ⇒   p = p̂ + y (and pᵢ = 0) has W̃ᵀp = W̃ᵀp̂ and 0 ≤ p ≤ (1+c)p̂

The search finds y in float32. Its residual e = t·w̃ᵢ − Σ yⱼw̃ⱼ is computed in float64 on W itself and
repaired within the head, dyⱼ = ωⱼ·xⱼ·P·Bᵀe, again and again; the token's own share of a repair is taken
into t. Each repair must leave less than half of the residual, down to what float64 can see, and all repairs
that could follow add up to less than twice the next one. By so much, and a margin of 10⁻⁶, the box is made
smaller before y is said to lie in it. Where the rows hardly reach some direction (one huge row of no
probability may hold it alone), a residual there looks small and cannot be repaired: then the certificate is
verified in rational arithmetic before it is one.

The linear program: Finlayson et al. 2024, eq. 3.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from unspool.basis.arrays import Array, Indices, float64
from unspool.basis.certificate import Rejection
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import Metric
from unspool.basis.solver.whitening import Whitened
from unspool.basis.verifier import Counterexample

MARGIN = 1e-6
ROUNDS = 12
# Residuals relative to t·xᵢ: repairing ends at the first, and above the second nothing is proven …
ENOUGH = 1e-10
AT_MOST = 1e-9
# … nor where the next repair would change a multiplier by more than this, relative to p̂.
UNREPAIRED = 1e-7
# The most rows × unknowns² for which a pseudo-inverse in float64 is made where float32 does not do.
SMALL = 2e7
# Up to so many numbers of W̃ are kept in float64.
KEPT = 500_000


@dataclass(frozen=True, eq=False)
class Settled:
    """Multipliers of tokens outside the head, within their box, that stay as they are: a column a case."""

    tokens_T: Indices
    y_TQ: Array
    """Scaled by κ."""
    sum_MQ: Array
    """Σ yⱼw̃ⱼ, in float64."""

    def keep(self, columns: Indices) -> Settled:
        """Those of some cases."""
        return Settled(self.tokens_T, self.y_TQ[:, columns], self.sum_MQ[:, columns])


def settle(white: Whitened, tokens_T: Indices, y_TQ: Array) -> Settled:
    """Fix these multipliers."""
    return Settled(tokens_T, y_TQ, white.combine(y_TQ, tokens_T))


class Balance:
    """Makes multipliers exact on the rows of one metric, the head of the distribution."""

    def __init__(self, white: Whitened, dist: Distribution, metric: Metric) -> None:
        self.white, self.dist, self.metric = white, dist, metric
        n = metric.hard + len(metric.rows.tokens_S)
        self.tokens_N: Indices = dist.order_N[:n]
        self.mass_N: Array = dist.head_N[:n] * dist.kappa
        self._small = n * white.X_VK.shape[1] ** 2 <= SMALL

    @cached_property
    def _rows_NM(self) -> Array | None:
        """The rows of W̃, where they are few enough to be kept: every repair asks for them."""
        return self.white.rows(self.tokens_N) if len(self.tokens_N) * self.white.m <= KEPT else None

    def _combine(self, y_NQ: Array) -> Array:
        """Σⱼ yⱼw̃ⱼ."""
        if self._rows_NM is None:
            return self.white.combine(y_NQ, self.tokens_N)
        total_MQ: Array = self._rows_NM.T @ y_NQ
        return total_MQ

    @cached_property
    def _root_N1(self) -> Array:
        return np.sqrt(np.maximum(self.mass_N, 1.0) * self.mass_N)[:, None]

    @cached_property
    def _inverse_NK(self) -> Array:
        """The pseudo-inverse of (√Ω·X)ᵀ in float64: for the few whose metric float32 cannot hold."""
        X_NK = self.white.rows(self.tokens_N) @ self.white.basis_MK
        return float64(np.linalg.pinv((self._root_N1 * X_NK).T, rcond=1e-13))

    def prove(
        self, y_NQ: Array, t_Q: Array, tokens_Q: Indices, slope: float, tail: Settled | None = None
    ) -> tuple[list[Rejection | None], Array]:
        """Certificates from approximate multipliers of the rows, None where there is none; bounds of F_i(c).

        `tail` are multipliers of other tokens. All are scaled by κ.
        """
        dist = self.dist
        goal_Q = dist.p[tokens_Q] * dist.kappa
        y_NQ, t_Q, left_Q = self._balanced(y_NQ, t_Q, tokens_Q, tail)
        stretch_Q = (np.maximum(y_NQ / slope, -y_NQ) / self.mass_N[:, None]).max(axis=0)
        if tail is not None:
            stretch_Q = np.maximum(stretch_Q, 1.0)
        reached_Q = np.maximum(t_Q, 0.0) / (stretch_Q + 2 * left_Q / min(1.0, slope) + MARGIN)
        found: list[Rejection | None] = [None] * len(tokens_Q)
        for q in np.flatnonzero(reached_Q > goal_Q):
            scale = goal_Q[q] / (t_Q[q] * dist.kappa)
            rows_N, shift_N = self.tokens_N, y_NQ[:, q] * scale
            if tail is not None:
                rows_N = np.concatenate([rows_N, tail.tokens_T])
                shift_N = np.concatenate([shift_N, tail.y_TQ[:, q] * scale])
            proof = Rejection(int(tokens_Q[q]), rows_N, shift_N)
            if self.metric.spans or self._is_true(proof, slope):
                found[q] = proof
            else:
                reached_Q[q] = 0
        return found, reached_Q / dist.kappa

    def _is_true(self, proof: Rejection, slope: float) -> bool:
        """Whether it proves what it should, in rational arithmetic."""
        white = self.white
        return Counterexample(proof, white.weight, white.largest_M, self.dist.p, Fraction(slope)).exists()

    def _balanced(
        self, y_NQ: Array, t_Q: Array, tokens_Q: Indices, tail: Settled | None
    ) -> tuple[Array, Array, Array]:
        """Multipliers of the head with Σ yⱼw̃ⱼ ≈ t·w̃ᵢ, t, and the repair still missing, relative to p̂."""
        white = self.white
        y_NQ = y_NQ.copy()
        own_Q = self.dist.ranks(tokens_Q)
        columns = np.flatnonzero(own_Q < len(y_NQ))
        own = (own_Q[columns], columns)
        y_NQ[own] = 0
        wanted_MQ = white.rows(tokens_Q).T
        fixed_MQ = 0.0 if tail is None else tail.sum_MQ
        reach_Q = np.abs(white.basis_MK.T @ wanted_MQ).max(axis=0)
        t_Q, before_Q, exact = t_Q.copy(), np.full(len(t_Q), np.inf), False
        for turn in range(ROUNDS):
            error_KQ = white.basis_MK.T @ (t_Q * wanted_MQ - fixed_MQ - self._combine(y_NQ))
            with np.errstate(divide="ignore", invalid="ignore"):
                miss_Q = np.abs(error_KQ).max(axis=0) / (np.maximum(t_Q, 0) * reach_Q)
            move_NQ = self._repair(error_KQ, exact)
            going_Q = (miss_Q > ENOUGH) & (miss_Q < before_Q / 2)
            if not going_Q.any() and not exact and self._small and (miss_Q > ENOUGH).any():
                exact, before_Q = True, np.full(len(t_Q), np.inf)
                continue
            if turn == ROUNDS - 1 or not going_Q.any():
                break
            y_NQ += move_NQ * going_Q
            t_Q[columns] -= (move_NQ * going_Q)[own]
            y_NQ[own] = 0
            before_Q = np.where(going_Q, miss_Q, before_Q)
        move_NQ[own] = 0
        left_Q = (np.abs(move_NQ) / self.mass_N[:, None]).max(axis=0)
        return y_NQ, t_Q, np.where((miss_Q <= AT_MOST) & (left_Q <= UNREPAIRED), left_Q, np.inf)

    def _repair(self, error_KQ: Array, exact: bool) -> Array:
        """Multipliers with Σ dyⱼxⱼ ≈ error: the smallest ones as ω measures them."""
        if exact:
            return self._root_N1 * (self._inverse_NK @ error_KQ)
        size_Q = np.maximum(np.abs(error_KQ).max(axis=0), 1e-300)
        unit_KQ, rows = (error_KQ / size_Q).astype(np.float32), self.metric.rows
        soft_SQ = rows.omega_S[:, None] * (rows.X_SK @ self.metric.solve(unit_KQ))
        move_NQ: Array = float64(np.concatenate([self.metric.solve_HK @ unit_KQ, soft_SQ])) * size_Q
        return move_NQ
