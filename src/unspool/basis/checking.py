"""Verify a certificate from nothing but its definition: float64, a few lines, no line of the solver's.

    acceptance:  s = W̃λ/(w̃ᵢ·λ),   Σ_{j≠i} p̂ⱼ·max(c·sⱼ, −sⱼ) < p̂ᵢ
    rejection:   yᵢ = −p̂ᵢ:   W̃ᵀy = 0,   −p̂ ≤ y ≤ c·p̂          (p = p̂ + y is the distribution with pᵢ = 0)

The equality can hold in float64 only up to rounding: |W̃ᵀy| ≤ 10⁻⁹·Σ|y|·max|w̃| is demanded of every column,
and that what is missing can be mended by next to nothing: the smallest change u, relative to p̂, with
W̃ᵀ(y + u·p̂) = 0 (a least-norm solution over the most probable tokens) must be below 10⁻⁶ and leave y within
the box. Nothing but rounding is forgiven so: a certificate of another token, mean or τ does not pass.

Finlayson et al. 2024, eq. 3 and its dual.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import float64
from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.theory import slope_from_tau

# The solver's own certificates are at 4·10⁻¹¹ and 4·10⁻⁸ at most, on thousands of small problems.
UNBALANCED = 1e-9
MENDED = 1e-6
# Directions of W̃ that are shorter, relative to the longest, are rounding: see whitening.py.
ROUNDING = 1e-10


def check(certificate: Acceptance | Rejection, W: Any, p: ArrayLike, tau: float) -> bool:
    """Whether the certificate proves what it says, for the rows W (V, r) of the test: `BasisTest.weight`."""
    W_VM = np.column_stack([float64(W), np.ones(len(float64(W)))])
    p_V, c, i = float64(p) / float64(p).sum(), slope_from_tau(tau), certificate.token
    others_V = np.arange(len(p_V)) != i
    if isinstance(certificate, Acceptance):
        s_V = W_VM @ certificate.slopes_M
        if not s_V[i] > 0:
            return False
        s_V = s_V[others_V] / s_V[i]
        return bool(p_V[others_V] @ np.maximum(c * s_V, -s_V) < p_V[i])
    y_V = np.zeros_like(p_V)
    y_V[certificate.rows_N] = certificate.shift_N
    y_V[i] = -p_V[i]
    top = np.argsort(-p_V * others_V)[: min(max(2000, 8 * W_VM.shape[1]), len(p_V) - 1)]
    W_VM /= np.maximum(np.abs(W_VM).max(axis=0), 1e-300)  # units do not matter to W̃ᵀy = 0
    if not np.abs(y_V @ W_VM).max() <= UNBALANCED * np.abs(y_V).sum():
        return False
    mend_V = np.zeros_like(p_V)
    for _ in range(3):
        mend_V[top] += np.linalg.lstsq(
            (W_VM[top] * p_V[top, None]).T, -((y_V + mend_V * p_V) @ W_VM), rcond=ROUNDING
        )[0]
    y_V += mend_V * p_V
    inside = (y_V >= -p_V).all() and (y_V <= c * p_V)[others_V].all() and y_V[i] == -p_V[i]
    balanced = np.abs(y_V @ W_VM).max() <= ROUNDING * np.abs(y_V).sum()
    return bool(inside and balanced and np.abs(mend_V).max() <= MENDED)
