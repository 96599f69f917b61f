"""Truncation theory: if log p is underestimated by at most δ, then p is overestimated by at most τ.

    log p* − log p̂ ≤ δ everywhere   ⇒   p̂ᵢ − p*ᵢ ≤ τ = 1 − e^(−δ)   ⇒   (p̂ᵢ > τ ⇒ p*ᵢ > 0)
    a model at its cross-entropy optimum   ⇒   Wᵀp* = Wᵀp̂

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2).
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from math import expm1, inf

from unspool.basis.arrays import check_float


def tau_from_delta(delta: float) -> float:
    """τ = 1 − e^(−δ), the largest possible overestimation of a probability (Theorem 1)."""
    return -expm1(-check_float("delta", delta, 0, inf, "a positive, finite bound on log p* − log p̂"))


def slope_from_tau(tau: float) -> float:
    """c = e^δ − 1 = τ/(1 − τ), the largest relative excess of p* over p̂."""
    tau = check_tau(tau)
    return tau / (1 - tau)


def tau_from_slope(slope: float) -> float:
    """τ = c/(1 + c)."""
    return 1.0 if slope == inf else slope / (1 + slope)


def check_tau(tau: float) -> float:
    """τ as a float; raises an error unless 0 < τ < 1."""
    return check_float("tau", tau, 0, 1, "a threshold strictly between 0 and 1 (typically 0.001 … 0.5)")
