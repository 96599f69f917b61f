"""What truncation proves: a bounded underestimation of log p bounds the overestimation of p.

    log p* − log p̂ ≤ δ everywhere   ⇒   p̂ᵢ − p*ᵢ ≤ τ = 1 − e^(−δ)   ⇒   (p̂ᵢ > τ ⇒ p*ᵢ > 0)
    a model at its cross-entropy optimum   ⇒   Wᵀp* = Wᵀp̂

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2).
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from math import expm1, inf, log1p

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import Array, float64


def tau_from_delta(delta: float) -> float:
    """The most that a probability can be overestimated: τ = 1 − e^(−δ) (Theorem 1)."""
    if not 0 < delta < inf:
        raise ValueError(f"delta is {delta}; it bounds log p* − log p̂ and must be positive and finite.")
    return -expm1(-delta)


def delta_from_tau(tau: float) -> float:
    """The underestimation of log p that a threshold allows for: δ = −log(1 − τ)."""
    return -log1p(-checked_tau(tau))


def slope_from_tau(tau: float) -> float:
    """c = e^δ − 1 = τ/(1 − τ): how far above p̂ the true probability may lie, relative to p̂."""
    return checked_tau(tau) / (1 - tau)


def checked_tau(tau: float) -> float:
    """The threshold itself, if it is one."""
    if not 0 < tau < 1:
        raise ValueError(
            f"tau is {tau}; it must lie strictly between 0 and 1 (common values are 0.001 … 0.5)."
        )
    return float(tau)


def the_tau(tau: float | None, delta: float | None) -> float:
    """τ, from whichever of the two the caller gave."""
    if (tau is None) == (delta is None):
        given = "neither was" if tau is None else "both were"
        raise ValueError(f"Give tau or delta, one of them (τ = 1 − e^(−δ)); {given} given.")
    return checked_tau(tau) if tau is not None else tau_from_delta(delta)  # type: ignore[arg-type]


def underestimation(true_p: ArrayLike, model_p: ArrayLike) -> float:
    """The empirical δ: the largest log p* − log p̂ over the tokens that can truly occur."""
    true_V, model_V = float64(true_p), float64(model_p)
    if true_V.shape != model_V.shape:
        raise ValueError(f"p* has shape {true_V.shape} and p̂ {model_V.shape}; they must be the same.")
    support_V = true_V > 0
    with np.errstate(divide="ignore"):  # p̂ = 0 where p* > 0 is an infinite underestimation, as it should be
        return float(np.max(np.log(true_V[support_V]) - np.log(model_V[support_V])))


def overestimation(true_p: ArrayLike, model_p: ArrayLike) -> float:
    """The largest p̂ − p*: what Theorem 1 bounds by 1 − e^(−δ)."""
    return float(np.max(float64(model_p) - float64(true_p)))


def optimality_residual(W: ArrayLike, true_p: ArrayLike, model_p: ArrayLike) -> Array:
    """Wᵀ(p* − p̂), which Theorem 2 says is zero at the optimum: (d,)."""
    W_VD = float64(W)
    true_V, model_V = float64(true_p), float64(model_p)
    if not len(W_VD) == len(true_V) == len(model_V):
        sizes = f"W has {len(W_VD)} rows, p* {len(true_V)} entries, p̂ {len(model_V)}"
        raise ValueError(f"{sizes}; all are one per token.")
    return W_VD.T @ (true_V - model_V)
