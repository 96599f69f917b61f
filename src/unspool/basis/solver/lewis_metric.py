"""The metric of the search: Lewis weights of the rows p̂ⱼxⱼ, in closed form.

    ω(p) = max(p², p/κ),   Σⱼ min(1, κp̂ⱼ) = m
    M = Σ_soft ωⱼ xⱼxⱼᵀ,   P = M⁻¹ on {λ : xⱼ·λ = 0 for hard j}

ℓ₁ Lewis weights reweight rows so that least squares approximates a sum of absolute values. Whitened
embeddings behave nearly like random directions, for which the weights have the closed form above: tokens
above 1/κ have leverage one, the others share the rest. In this metric the number of Douglas–Rachford
iterations is almost independent of the distribution. "Hard" tokens (κp̂ > 20) have s = xⱼ·λ = 0 in every
good solution. They are constrained to it, which also keeps M well conditioned in float32.

Cohen & Peng 2015, §2 (Lewis weights and their fixed point). papers.bib: cohen2015lewis
Differs from the paper: no fixed-point iteration; the weights need only p̂.

Symbols: probabilities are scaled by κ here and in the search: `mass` is κp̂, `omega` is κ²ω.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

from unspool.basis.arrays import Array, Array32, Indices
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.whitening import WhitenedMatrix

HARD_THRESHOLD = 20.0
# Rows with less scaled mass are left out of the search, because float32 would underflow.
MIN_MASS = 1e-9
BLOCK = 4096
# Ridges relative to the mean diagonal of M; the first that lets float32 factorise M is used.
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class SearchRows:
    """The soft rows of a search: their multipliers are bounded by a box. Hard tokens are excluded."""

    whitened: WhitenedMatrix
    tokens_S: Indices
    mass_S: Array32
    omega_S: Array32
    n_hard: int
    n_head: int
    """The first n_head rows are the most probable ones, in order; sampled tail rows may follow."""
    covers_vocabulary: bool
    """The rows represent the whole vocabulary, so a λ found here can prove acceptance."""
    is_unsampled: bool
    """No row represents others, so multipliers found here can prove rejection."""
    is_full: bool = False
    """These are all rows in vocabulary order; X is used without a copy."""

    @cached_property
    def X_SK(self) -> Array32:
        return self.whitened.X_VK if self.is_full else self.whitened.X_VK.take(self.tokens_S, axis=0)


def select_head(whitened: WhitenedMatrix, dist: Distribution, n: int) -> SearchRows:
    """The n most probable rows."""
    dist.extend_head(n)
    n_hard = _count_hard(whitened, dist)
    n_kept = int(np.count_nonzero(dist.head_N[:n] * dist.kappa > MIN_MASS))
    mass_S, tokens_S = dist.head_N[n_hard:n_kept] * dist.kappa, dist.order_N[n_hard:n_kept]
    omega_S = (np.maximum(mass_S, 1.0) * mass_S).astype(np.float32)
    sizes = (n_hard, len(mass_S), n_kept >= dist.support)
    return SearchRows(whitened, tokens_S, mass_S.astype(np.float32), omega_S, *sizes, is_unsampled=True)


def select_head_and_sample(whitened: WhitenedMatrix, dist: Distribution, n: int, size: int) -> SearchRows:
    """The n most probable rows, and a sample of the tail with the tail's total mass."""
    top = select_head(whitened, dist, n)
    tokens_T, weight_T = dist.sample_tail(top.n_hard + len(top.tokens_S), size)
    mass_T = weight_T * dist.kappa
    omega_T = np.maximum(dist.p[tokens_T] * dist.kappa, 1.0) * mass_T
    return SearchRows(
        whitened,
        np.concatenate([top.tokens_S, tokens_T]),
        np.concatenate([top.mass_S, mass_T.astype(np.float32)]),
        np.concatenate([top.omega_S, omega_T.astype(np.float32)]),
        top.n_hard,
        top.n_head,
        covers_vocabulary=True,
        is_unsampled=not len(tokens_T),
    )


def select_all(whitened: WhitenedMatrix, dist: Distribution) -> SearchRows:
    """All rows in vocabulary order, so that X is not copied; hard rows and negligible ones have mass 0."""
    n_hard, mass_V = _count_hard(whitened, dist), dist.p * dist.kappa
    mass_V[mass_V <= MIN_MASS] = 0
    mass_V[dist.order_N[:n_hard]] = 0
    mass32_V = mass_V.astype(np.float32)
    tokens_V = np.arange(len(mass_V))
    omega_V = np.maximum(mass32_V, 1) * mass32_V
    return SearchRows(whitened, tokens_V, mass32_V, omega_V, n_hard, 0, True, True, is_full=True)


def _count_hard(whitened: WhitenedMatrix, dist: Distribution) -> int:
    """The number of hard tokens; at least one unknown and one row stay free."""
    mass_N = dist.head_N * dist.kappa
    most = min(whitened.X_VK.shape[1], int(np.count_nonzero(mass_N > MIN_MASS))) - 1
    return int(np.count_nonzero(mass_N[:most] > HARD_THRESHOLD))


class LewisMetric:
    """M of some rows and its Cholesky factor, shared by all tokens tested on one distribution.

    `prefix` is a metric over the first rows of this one; its Gram matrix is reused.
    """

    def __init__(
        self,
        whitened: WhitenedMatrix,
        dist: Distribution,
        rows: SearchRows,
        prefix: LewisMetric | None = None,
    ) -> None:
        self.rows = rows
        self.n_hard = rows.n_hard
        self.hard_mass_H: Array32 = (dist.head_N[: rows.n_hard] * dist.kappa).astype(np.float32)
        self.hard_HK: Array32 = whitened.X_VK[dist.order_N[: rows.n_hard]]
        known = len(prefix.rows.tokens_S) if prefix is not None else 0
        self._gram_KK = _gram(rows.X_SK[known:], rows.omega_S[known:])
        if prefix is not None:
            self._gram_KK += prefix._gram_KK
        self._lower_KK, self._ridge = _cholesky(self._gram_KK)
        inverse_HH, self.solve_HK = np.zeros((0, 0)), self.hard_HK
        """Y with X_hard·Yᵀ = I: row h is the λ of least M-norm with s = 1 at hard token h, else s = 0."""
        if rows.n_hard:
            through_KH = lapack.spotrs(self._lower_KK, self.hard_HK.T, lower=1)[0]
            inverse_HH = _inverse((self.hard_HK @ through_KH).astype(np.float64))
            self.solve_HK = (inverse_HH @ through_KH.T.astype(np.float64)).astype(np.float32)
        self.norm_H: Array32 = inverse_HH.diagonal().astype(np.float32)
        """The squared M-norm of each row of Y."""

    @cached_property
    def is_full_rank(self) -> bool:
        """True if the least eigenvalue of M exceeds the ridge, that is, if the rows span every direction.

        If not, a residual may look small only because almost no row has a component in its direction.
        """
        least, _ = lapack.spocon(self._lower_KK, 1.0, uplo="L")  # 1/‖M⁻¹‖, a lower bound
        return bool(self._ridge == RIDGES[0] and least > 3 * _ridge_term(self._gram_KK, RIDGES[0]))

    def solve(self, e_KQ: Array32) -> Array32:
        """P·e: the λ with s = 0 on the hard rows and M·λ = e up to multiples of them."""
        out: Array32 = lapack.spotrs(self._lower_KK, self.project_out_hard(e_KQ), lower=1)[0]
        return out

    def project_out_hard(self, e_KQ: Array32) -> Array32:
        """The part of e outside the span of the hard rows."""
        return e_KQ - self.hard_HK.T @ (self.solve_HK @ e_KQ) if self.n_hard else e_KQ


def _gram(X_SK: Array32, omega_S: Array32) -> Array32:
    """XᵀΩX, its lower triangle."""
    gram_KK = np.zeros((X_SK.shape[1], X_SK.shape[1]), dtype=np.float32, order="F")
    root_S1 = np.sqrt(omega_S)[:, None]
    for start in range(0, len(X_SK), BLOCK):
        scaled_BK = X_SK[start : start + BLOCK] * root_S1[start : start + BLOCK]
        gram_KK = blas.ssyrk(1.0, scaled_BK.T, beta=1.0, c=gram_KK, lower=1, overwrite_c=1)
    return gram_KK


def _cholesky(gram_KK: Array32) -> tuple[Array32, float]:
    """The lower Cholesky factor and the smallest ridge for which float32 finds one."""
    corner = np.diag_indices(len(gram_KK))
    for ridge in RIDGES:
        tried_KK = gram_KK.copy(order="F")
        tried_KK[corner] += _ridge_term(gram_KK, ridge)
        lower_KK: Array32
        lower_KK, failed = lapack.spotrf(tried_KK, lower=1, overwrite_a=1)
        if not failed:
            break
    return lower_KK, ridge


def _ridge_term(gram_KK: Array32, ridge: float) -> np.float32:
    return np.float32(ridge) * np.float32(gram_KK.trace() / len(gram_KK)) + np.float32(1e-30)


def _inverse(inner_HH: Array) -> Array:
    """The inverse; the pseudo-inverse if hard rows are linearly dependent (duplicates)."""
    lower_HH, failed = lapack.dpotrf(inner_HH, lower=1)
    if failed:
        return np.asarray(np.linalg.pinv(inner_HH, rcond=1e-9, hermitian=True))
    half_HH: Array = np.tril(lapack.dpotri(lower_HH, lower=1)[0])
    return half_HH + np.tril(half_HH, -1).T
