"""Truncation theory: if log p is underestimated by at most δ, then p is overestimated by at most τ.

    log p* − log p̂ ≤ δ everywhere   ⇒   p̂ᵢ − p*ᵢ ≤ τ = 1 − e^(−δ)   ⇒   (p̂ᵢ > τ ⇒ p*ᵢ > 0)
    a model at its cross-entropy optimum   ⇒   Wᵀp* = Wᵀp̂

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2).
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from math import expm1, inf, log1p

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import Array, as_float64, as_masses, check_float


def tau_from_delta(delta: float) -> float:
    """τ = 1 − e^(−δ), the largest possible overestimation of a probability (Theorem 1)."""
    return -expm1(-check_float("delta", delta, 0, inf, "a positive, finite bound on log p* − log p̂"))


def delta_from_tau(tau: float) -> float:
    """δ = −log(1 − τ), the underestimation of log p that a threshold allows."""
    return -log1p(-check_tau(tau))


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


def resolve_tau(tau: float | None, delta: float | None) -> float:
    """τ from exactly one of τ and δ."""
    if (tau is None) == (delta is None):
        given = "neither was" if tau is None else "both were"
        raise ValueError(f"give either tau or delta (τ = 1 − e^(−δ)); {given} given")
    return check_tau(tau) if tau is not None else tau_from_delta(delta)  # type: ignore[arg-type]


def underestimation(true_p: ArrayLike, model_p: ArrayLike) -> float:
    """The empirical δ: the largest log p* − log p̂ over tokens with p* > 0."""
    true_V, model_V = _check_pair(true_p, model_p)
    support_V = true_V > 0
    with np.errstate(divide="ignore"):  # p̂ = 0 < p* is an infinite underestimation
        return float(np.max(np.log(true_V[support_V]) - np.log(model_V[support_V])))


def overestimation(true_p: ArrayLike, model_p: ArrayLike) -> float:
    """The largest p̂ − p*, which Theorem 1 bounds by 1 − e^(−δ)."""
    true_V, model_V = _check_pair(true_p, model_p)
    return float(np.max(model_V - true_V))


def optimality_residual(W: ArrayLike, true_p: ArrayLike, model_p: ArrayLike) -> Array:
    """Wᵀ(p* − p̂), (d,); zero at the optimum (Theorem 2)."""
    W_VD = as_float64(W)
    true_V, model_V = _check_pair(true_p, model_p)
    if not np.isfinite(W_VD).all():
        raise ValueError("W contains NaN or infinite entries")
    if W_VD.ndim != 2 or true_V.shape != W_VD.shape[:1]:
        raise ValueError(
            f"W has shape {W_VD.shape} and p* {true_V.shape}; expected (V, d) and (V,), one row per token"
        )
    return W_VD.T @ (true_V - model_V)


def _check_pair(true_p: ArrayLike, model_p: ArrayLike) -> tuple[Array, Array]:
    """p* and p̂ as float64 arrays of the same shape; p* must have a positive entry."""
    true_V, model_V = as_masses("p*", true_p), as_masses("p̂", model_p)
    if true_V.shape != model_V.shape:
        raise ValueError(
            f"p* has shape {true_V.shape} and p̂ {model_V.shape}; expected one probability per token in both"
        )
    if not (true_V > 0).any():
        raise ValueError("p* has no positive entry; expected the true distribution, which sums to 1")
    return true_V, model_V
