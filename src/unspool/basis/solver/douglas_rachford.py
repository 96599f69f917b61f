"""Search a counter-distribution and its impossibility at once: Douglas–Rachford in the Lewis metric.

    A = {y : Σⱼ yⱼxⱼ = p̂ᵢxᵢ}      B = {y : −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ}            reject i  ⇔  A ∩ B ≠ ∅

    b = Π_B(v)      d = P·(p̂ᵢxᵢ − Σⱼ(2b − v)ⱼxⱼ)      a = Π_A(2b − v) = 2b − v + ΩXd      v ← v + 1.5·(a − b)

a always lies in A: once it lies in B too, it proves rejection. If the sets do not meet, v runs away, and
the direction d in which it runs separates them: λ = d/(xᵢ·d) has f(λ) < p̂ᵢ and proves acceptance. The
first d is the λ of least squares. There is no step size: the problem is homogeneous, and the metric is Ω.

Boyd et al. 2011, §5.1 (a point in the intersection of convex sets) and §3.4.3 (over-relaxation); the same
iteration is ADMM for the dual.
papers.bib: boyd2011distributed

Some rows may be settled beforehand: then A asks of the others Σⱼ yⱼxⱼ = p̂ᵢxᵢ − g, with g, `glob`, what the
settled ones make together.

Symbols: `aim` stands for p̂ᵢ in A and is a little more, so that a may miss by as much. Hard tokens take
whatever multipliers the soft ones leave to them. A token's own row is no part of its problem: over the
other rows P becomes P + β·ttᵀ with t = P·xᵢ/(xᵢ·P·xᵢ), `_toward_KQ`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from unspool.basis.arrays import Array, Array32, Indices, float64
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.lewis_metric import Metric, Selection
from unspool.basis.solver.whitening import Whitened

RELAX = np.float32(1.5)
AIM = 1.0005


@dataclass(frozen=True, eq=False)
class SearchSnapshot:
    """One token's search: its rows, v, s = X·λ and λ."""

    rows: Selection
    v_S: Array32
    s_S: Array32
    lam_K: Array32
    travel_K: Array32
    """The sum of all its λ, relaxed: a row that has not met an end of its box has v = ω·x·this."""


class DouglasRachford:
    """Searches for Q tokens side by side, a column each. All probabilities are scaled by κ."""

    def __init__(
        self,
        white: Whitened,
        dist: Distribution,
        metric: Metric,
        tokens_Q: Indices,
        slope: float,
        glob_KQ: Array32 | None = None,
    ) -> None:
        rows = metric.rows
        self.metric = metric
        self.slope = np.float32(slope)
        self.tokens_Q = tokens_Q
        self.ranks_Q = dist.ranks(tokens_Q)
        self.goal_Q: Array = dist.p[tokens_Q] * dist.kappa
        self.x_KQ: Array32 = np.ascontiguousarray(white.X_VK[tokens_Q].T)
        self.glob_KQ: Array32 = np.zeros_like(self.x_KQ) if glob_KQ is None else glob_KQ
        self.aim_KQ: Array32 = (AIM * self.goal_Q).astype(np.float32) * self.x_KQ - self.glob_KQ
        self._low_S1: Array32 = -rows.mass_S[:, None]
        self._high_S1: Array32 = self.slope * rows.mass_S[:, None]
        self._omega_S1: Array32 = rows.omega_S[:, None]
        with np.errstate(divide="ignore"):
            self._inverse_S1 = np.where(rows.mass_S > 0, 1 / rows.mass_S, np.float32(0))[:, None]
        self._own = _own_rows(rows.tokens_S, tokens_Q)
        self._toward_KQ, self._beta_Q = self._over_the_others()
        self.v_SQ: Array32 = np.zeros((len(rows.mass_S), len(tokens_Q)), dtype=np.float32)
        self.lam_KQ: Array32 = self._toward_KQ
        self.travel_KQ: Array32 = np.zeros_like(self.x_KQ)

    def _over_the_others(self) -> tuple[Array32, Array32]:
        """t and β of each column."""
        metric = self.metric
        toward_KQ = metric.solve(self.x_KQ)
        gain_Q = np.einsum("kq,kq->q", self.x_KQ, toward_KQ)
        # A token in the span of the hard ones is balanced by them alone: nothing is left to search.
        left_Q = np.abs(metric.free(self.x_KQ)).max(axis=0) / np.abs(self.x_KQ).max(axis=0)
        usable_Q = (left_Q > 1e-4) & (gain_Q > 0)
        toward_KQ = toward_KQ * np.where(usable_Q, 1 / np.where(usable_Q, gain_Q, 1), 0).astype(np.float32)
        beta_Q = np.zeros(len(gain_Q), dtype=np.float32)
        rows, columns = self._own
        omega, gain = metric.rows.omega_S[rows], gain_Q[columns]
        beta_Q[columns] = omega * gain * gain / np.maximum(1 - omega * gain, np.float32(1e-4))
        for q in np.flatnonzero(self.ranks_Q < metric.hard):
            toward_KQ[:, q] = metric.solve_HK[self.ranks_Q[q]]
            beta_Q[q] = 1 / metric.norm_H[self.ranks_Q[q]]
        return toward_KQ, beta_Q

    def iterate(self) -> None:
        """One iteration of every column."""
        X_SK = self.metric.rows.X_SK
        b_SQ = np.minimum(np.maximum(self.v_SQ, self._low_S1), self._high_S1)
        mirrored_SQ = 2 * b_SQ - self.v_SQ
        missing_KQ = self.aim_KQ - X_SK.T @ mirrored_SQ
        along_Q = np.einsum("kq,kq->q", self._toward_KQ, missing_KQ) * self._beta_Q
        self.lam_KQ = self.metric.solve(missing_KQ) + self._toward_KQ * along_Q
        self.travel_KQ += RELAX * self.lam_KQ
        self.s_SQ: Array32 = X_SK @ self.lam_KQ
        self.s_SQ[self._own] = 0
        self.a_SQ: Array32 = mirrored_SQ + self._omega_S1 * self.s_SQ
        self.v_SQ += RELAX * (self.a_SQ - b_SQ)

    def stretch(self) -> Array:
        """How many times larger the box must be for a to lie in it; at most 1 proves rejection."""
        relative_SQ = self.a_SQ * self._inverse_S1
        stretch_Q = float64(np.maximum(relative_SQ.max(axis=0) / self.slope, -relative_SQ.min(axis=0)))
        near = np.flatnonzero(stretch_Q <= 1)
        if self.metric.hard and len(near):
            stretch_Q[near] = np.maximum(stretch_Q[near], self._hard_stretch(near))
        return stretch_Q

    def _hard_stretch(self, columns: Indices) -> Array:
        """The same for the hard tokens, whose multipliers are what is missing."""
        metric = self.metric
        missing_KQ = self.aim_KQ[:, columns] - metric.rows.X_SK.T @ self.a_SQ[:, columns]
        relative_HQ = metric.solve_HK @ missing_KQ / metric.hard_mass_H[:, None]
        relative_HQ[np.arange(metric.hard)[:, None] == self.ranks_Q[columns]] = 0
        return float64(np.maximum(relative_HQ / self.slope, -relative_HQ).max(axis=0))

    def multipliers(self, columns: Indices) -> Array:
        """a, of the hard tokens (which take what is missing, in the proof) and of the head."""
        return np.concatenate([np.zeros((self.metric.hard, len(columns))), self.a_SQ[:, columns]])

    def upper(self) -> Array:
        """f(λ) over the metric's rows; infinite where λ points away from the token."""
        value_Q = self.metric.rows.mass_S @ np.maximum(self.slope * self.s_SQ, -self.s_SQ)
        value_Q += np.einsum("kq,kq->q", self.glob_KQ, self.lam_KQ)
        own_Q = np.einsum("kq,kq->q", self.x_KQ, self.lam_KQ)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(own_Q > 0, value_Q / own_Q, np.inf).astype(np.float64)

    def snapshot(self, column: int) -> SearchSnapshot:
        """Where one token's search stands."""
        parts = (self.v_SQ, self.s_SQ, self.lam_KQ, self.travel_KQ)
        return SearchSnapshot(self.metric.rows, *(part[:, column] for part in parts))

    def resume(self, column: int, other: SearchSnapshot) -> None:
        """Go on from where a search over a head and a sample has come to, over more rows than its head's.

        The head keeps its v. For any other row v = ω·x·travel, but no further from its box than ω·α·s, with
        the α that the head's rows have: the further the search, the further v has run.
        """
        head, theirs, rows = other.rows.head, other.rows, self.metric.rows
        v_N, s_N = other.v_S[:head], other.s_S[:head]
        omega_N, mass_N = theirs.omega_S[:head], theirs.mass_S[:head]
        beyond_N = v_N - np.minimum(np.maximum(v_N, -mass_N), self.slope * mass_N)
        alpha = np.float32(beyond_N @ s_N / max(float((omega_N * s_N) @ s_N), 1e-30))
        far_S, s_S = (rows.X_SK @ np.stack([other.travel_K, alpha * other.lam_K], axis=1)).T * rows.omega_S
        b_S = np.minimum(np.maximum(far_S, -rows.mass_S), self.slope * rows.mass_S)
        v_S = b_S + np.where((far_S - b_S) * s_S > 0, s_S, np.float32(0))
        v_S[slice(head) if rows.head else theirs.tokens_S[:head]] = v_N
        v_S[rows.tokens_S == self.tokens_Q[column]] = 0
        self.v_SQ[:, column], self.travel_KQ[:, column] = v_S, other.travel_K

    def sides(self, column: int, mass_V: Array) -> tuple[Array, Array]:
        """Over all rows: the multipliers b, and how far each row is from leaving its end of the box."""
        v_V = self.v_SQ[:, column].astype(np.float64)
        y_V = np.clip(v_V, -mass_V, float(self.slope) * mass_V)
        with np.errstate(divide="ignore", invalid="ignore"):
            far_V = np.where(mass_V > 0, (v_V - y_V) / (np.maximum(mass_V, 1.0) * mass_V), np.inf)
        y_V[self.tokens_Q[column]] = 0
        return y_V, far_V

    def keep(self, columns: Indices) -> None:
        """Go on with these columns only."""
        self.tokens_Q, self.ranks_Q = self.tokens_Q[columns], self.ranks_Q[columns]
        self.goal_Q, self._beta_Q = self.goal_Q[columns], self._beta_Q[columns]
        for name in (
            "x_KQ",
            "glob_KQ",
            "aim_KQ",
            "_toward_KQ",
            "v_SQ",
            "lam_KQ",
            "travel_KQ",
            "s_SQ",
            "a_SQ",
        ):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, columns]))
        self._own = _own_rows(self.metric.rows.tokens_S, self.tokens_Q)


def _own_rows(tokens_S: Indices, tokens_Q: Indices) -> tuple[Indices, Indices]:
    """Where the candidates' own rows stand: (rows, columns)."""
    rows, columns = np.nonzero(tokens_S[:, None] == tokens_Q)
    return rows, columns


ROWS = 128


class LeastSquares:
    """The factor for one distribution; `slopes` gives the λ of any tokens.

    A first λ for nothing: least squares in the Lewis metric, from the most probable rows alone.

        λ ∝ argmin{Σ_head ωⱼ(xⱼ·λ)² + ω_tail‖λ‖² : xᵢ·λ = 1} ∝ xᵢ − X₀ᵀ(D + X₀X₀ᵀ)⁻¹X₀xᵢ
        D = diag(ω_tail/ωⱼ),   ω_tail = Σ_tail p̂/κ

    The tail enters as one round block, which is what whitening made of it. n₀ rows cost an n₀ × n₀ Cholesky
    factor, once for all tokens; most acceptances at full width are proven by this λ.

    Weights: Cohen & Peng 2015, §2.
    papers.bib: cohen2015lewis
    """

    def __init__(self, white: Whitened, dist: Distribution, rows: int = ROWS) -> None:
        n = min(rows, len(dist.head_N))
        p_N = dist.head_N[:n]
        omega_N = np.maximum(p_N * p_N, p_N / dist.kappa)
        self._white, self._dist = white, dist
        self._X_NK: Array = white.X_VK.take(dist.order_N[:n], axis=0).astype(np.float64)
        gram_NN = blas.dsyrk(1.0, self._X_NK.T, trans=1, lower=1)
        # Without a tail the problem may be solved by s = 0 everywhere: a trace of one keeps the factor there.
        tail = dist.mass_N[n] / dist.kappa + 1e-12 * omega_N[0]
        corner_N = gram_NN.T.reshape(-1)[:: n + 1]
        corner_N += tail / omega_N + 1e-12 * corner_N
        self._lower_NN, failed = lapack.dpotrf(gram_NN, lower=1, clean=0, overwrite_a=1)
        self.usable = not failed

    def slopes(self, tokens_Q: Indices) -> Array:
        """λ of each token, (K, Q); not normalised."""
        x_KQ = self._white.X_VK[tokens_Q].astype(np.float64).T
        ranks_Q = self._dist.ranks(tokens_Q)
        inside = np.flatnonzero(ranks_Q < len(self._X_NK))
        right_NQ = self._X_NK @ x_KQ
        # For a row of X₀ the same λ, up to its length, is X₀ᵀ(D + X₀X₀ᵀ)⁻¹e: no difference of near equals.
        right_NQ[:, inside] = 0
        right_NQ[ranks_Q[inside], inside] = -1
        x_KQ[:, inside] = 0
        out: Array = x_KQ - self._X_NK.T @ lapack.dpotrs(self._lower_NN, right_NQ, lower=1)[0]
        return out
