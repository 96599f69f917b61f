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

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import Array, as_numpy, float64, probabilities, shown, whole
from unspool.basis.certificate import Acceptance, Rejection
from unspool.basis.theory import checked_tau
from unspool.basis.verification.counterexample import Counterexample
from unspool.basis.verification.inequality import Inequality, blocks_of


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
