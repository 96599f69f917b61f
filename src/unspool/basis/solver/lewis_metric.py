"""The metric of the search: Lewis weights of the rows p̂ⱼxⱼ, in closed form.

    ω(p) = max(p², p/κ),   Σⱼ min(1, κp̂ⱼ) = m
    M = Σ_soft ωⱼ xⱼxⱼᵀ,   P = M⁻¹ on {λ : xⱼ·λ = 0 for hard j}

ℓ₁ Lewis weights reweight rows so that least squares sees what absolute values see. For whitened embeddings
their fixed point is nearly that of random directions, where it has the closed form above: tokens above 1/κ
have leverage one, the others share what is left. In this metric the iterations of douglas_rachford.py
hardly depend on the distribution. Tokens far above (hard: κp̂ > 20) end with s = xⱼ·λ = 0 in every good
solution; they are held there exactly, which also keeps M well conditioned in float32.

Cohen & Peng 2015, §2 (Lewis weights and their fixed point).
papers.bib: cohen2015lewis
Differs from the paper: no fixed-point iteration; the weights need only p̂.

Probabilities are scaled by κ here and in the search, so that numbers are near 1: `mass` is κp̂, `omega` κ²ω.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas, lapack

from unspool.basis.arrays import Array, Array32, Indices
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.whitening import Whitened

HARD = 20.0
# Below this share of 1/κ a row is left out of the search: float32 would underflow.
FAINT = 1e-9
BLOCK = 4096
# Added to M's diagonal, relative to its mean, for float32 to factorise it: the first that does.
RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class Selection:
    """The soft rows of a search, whose multipliers stay within a box; hard tokens are not of them."""

    white: Whitened
    tokens_S: Indices
    mass_S: Array32
    omega_S: Array32
    hard: int
    head: int
    """How many of the rows are the most probable ones, in order; a sample follows, or nothing."""
    complete: bool
    """Whether a λ found here knows of the whole vocabulary: a candidate for acceptance."""
    real: bool
    """Whether multipliers found here are multipliers of p̂ itself: candidates for rejection."""
    whole: bool = False
    """Whether these are all rows in the vocabulary's own order, which need not be copied."""

    @cached_property
    def X_SK(self) -> Array32:
        """The rows, whitened."""
        return self.white.X_VK if self.whole else self.white.X_VK.take(self.tokens_S, axis=0)


def head(white: Whitened, dist: Distribution, n: int) -> Selection:
    """The n most probable rows."""
    dist.extend(n)
    mass_N = dist.head_N[:n] * dist.kappa
    hard, bright = _hard(white, dist), int(np.count_nonzero(mass_N > FAINT))
    mass_S = mass_N[hard:bright].astype(np.float32)
    omega_S = (np.maximum(mass_N[hard:bright], 1.0) * mass_N[hard:bright]).astype(np.float32)
    complete = bright >= dist.support
    return Selection(
        white, dist.order_N[hard:bright], mass_S, omega_S, hard, len(mass_S), complete, real=True
    )


def head_and_sample(white: Whitened, dist: Distribution, n: int, size: int) -> Selection:
    """The n most probable rows, and a sample of the others that weighs as much as they do."""
    top = head(white, dist, n)
    tokens_T, weight_T = dist.sample_beyond(top.hard + len(top.tokens_S), size)
    mass_T = weight_T * dist.kappa
    omega_T = np.maximum(dist.p[tokens_T] * dist.kappa, 1.0) * mass_T
    return Selection(
        white,
        np.concatenate([top.tokens_S, tokens_T]),
        np.concatenate([top.mass_S, mass_T.astype(np.float32)]),
        np.concatenate([top.omega_S, omega_T.astype(np.float32)]),
        top.hard,
        top.head,
        complete=True,
        real=not len(tokens_T),
    )


def everything(white: Whitened, dist: Distribution) -> Selection:
    """Every row, in the vocabulary's own order so that X is not copied; hard and faint ones weigh nothing."""
    hard, mass_V = _hard(white, dist), dist.p * dist.kappa
    mass_V[mass_V <= FAINT] = 0
    mass_V[dist.order_N[:hard]] = 0
    mass32_V = mass_V.astype(np.float32)
    tokens_V = np.arange(len(mass_V))
    omega_V = np.maximum(mass32_V, 1) * mass32_V
    return Selection(white, tokens_V, mass32_V, omega_V, hard, 0, True, True, whole=True)


def _hard(white: Whitened, dist: Distribution) -> int:
    """How many tokens are hard: never so many that nothing is left to search."""
    mass_N = dist.head_N * dist.kappa
    most = min(white.X_VK.shape[1], int(np.count_nonzero(mass_N > FAINT))) - 1
    return int(np.count_nonzero(mass_N[:most] > HARD))


class Metric:
    """A selection and the factor of its M: shared by all tokens that are tested on one distribution.

    A metric whose rows are the first ones of this selection lends its part of M.
    """

    def __init__(
        self, white: Whitened, dist: Distribution, rows: Selection, part: Metric | None = None
    ) -> None:
        self.rows = rows
        self.hard = rows.hard
        self.hard_mass_H: Array32 = (dist.head_N[: rows.hard] * dist.kappa).astype(np.float32)
        self.hard_HK: Array32 = white.X_VK[dist.order_N[: rows.hard]]
        known = len(part.rows.tokens_S) if part is not None else 0
        self._gram_KK = _gram(rows.X_SK[known:], rows.omega_S[known:])
        if part is not None:
            self._gram_KK += part._gram_KK
        self._lower_KK, self._ridge = _cholesky(self._gram_KK)
        self.solve_HK: Array32 = np.zeros((0, rows.X_SK.shape[1]), dtype=np.float32)
        """Y, with X_hard·Yᵀ = I: row h is the λ of least M-norm with s = 1 at hard token h, 0 at others …"""
        self.norm_H: Array32 = np.zeros(0, dtype=np.float32)
        """… and this is its M-norm, squared."""
        if rows.hard:
            through_KH = lapack.spotrs(self._lower_KK, self.hard_HK.T, lower=1)[0]
            inverse_HH = _inverse((self.hard_HK @ through_KH).astype(np.float64))
            self.solve_HK = (inverse_HH @ through_KH.T.astype(np.float64)).astype(np.float32)
            self.norm_H = inverse_HH.diagonal().astype(np.float32)

    @cached_property
    def spans(self) -> bool:
        """Whether the rows reach every direction: M's least eigenvalue is more than what was added to it.

        If not, an error in some direction may look small only because hardly any row goes there.
        """
        least, _ = lapack.spocon(self._lower_KK, 1.0, uplo="L")  # 1/‖M⁻¹‖, which is no more
        return bool(self._ridge == RIDGES[0] and least > 3 * _added(self._gram_KK, RIDGES[0]))

    def solve(self, e_KQ: Array32) -> Array32:
        """P·e: the λ with M·λ = e up to multiples of the hard rows, and s = 0 on them."""
        out: Array32 = lapack.spotrs(self._lower_KK, self.free(e_KQ), lower=1)[0]
        return out

    def free(self, e_KQ: Array32) -> Array32:
        """What the hard rows cannot balance of e."""
        return e_KQ - self.hard_HK.T @ (self.solve_HK @ e_KQ) if self.hard else e_KQ


def _gram(X_SK: Array32, omega_S: Array32) -> Array32:
    """XᵀΩX, its lower triangle."""
    gram_KK = np.zeros((X_SK.shape[1], X_SK.shape[1]), dtype=np.float32, order="F")
    root_S1 = np.sqrt(omega_S)[:, None]
    for start in range(0, len(X_SK), BLOCK):
        scaled_BK = X_SK[start : start + BLOCK] * root_S1[start : start + BLOCK]
        gram_KK = blas.ssyrk(1.0, scaled_BK.T, beta=1.0, c=gram_KK, lower=1, overwrite_c=1)
    return gram_KK


def _cholesky(gram_KK: Array32) -> tuple[Array32, float]:
    """The lower factor, with as little added to the diagonal as float32 needs, and how much that is."""
    corner = np.diag_indices(len(gram_KK))
    for ridge in RIDGES:
        tried_KK = gram_KK.copy(order="F")
        tried_KK[corner] += _added(gram_KK, ridge)
        lower_KK: Array32
        lower_KK, failed = lapack.spotrf(tried_KK, lower=1, overwrite_a=1)
        if not failed:
            break
    return lower_KK, ridge


def _added(gram_KK: Array32, ridge: float) -> np.float32:
    return np.float32(ridge) * np.float32(gram_KK.trace() / len(gram_KK)) + np.float32(1e-30)


def _inverse(inner_HH: Array) -> Array:
    """The inverse, or where hard rows depend on each other (duplicates) the pseudo-inverse."""
    lower_HH, failed = lapack.dpotrf(inner_HH, lower=1)
    if failed:
        return np.asarray(np.linalg.pinv(inner_HH, rcond=1e-9, hermitian=True))
    half_HH: Array = np.tril(lapack.dpotri(lower_HH, lower=1)[0])
    return half_HH + np.tril(half_HH, -1).T
