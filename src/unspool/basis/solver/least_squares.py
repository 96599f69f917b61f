"""A first λ for nothing: least squares in the Lewis metric, from the most probable rows alone.

    λ ∝ argmin{Σ_head ωⱼ(xⱼ·λ)² + ω_tail‖λ‖² : xᵢ·λ = 1} ∝ xᵢ − X₀ᵀ(D + X₀X₀ᵀ)⁻¹X₀xᵢ
    D = diag(ω_tail/ωⱼ),   ω_tail = Σ_tail p̂/κ

The tail enters as one round block, which is what whitening made of it. n₀ rows cost an n₀ × n₀ Cholesky
factor, once for all tokens; most acceptances at full width are proven by this λ.

Weights: Cohen & Peng 2015, §2.
papers.bib: cohen2015lewis
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack

from unspool.basis.arrays import Array, Indices
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.whitening import Whitened

ROWS = 128


class LeastSquares:
    """The factor for one distribution; `slopes` gives the λ of any tokens."""

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
