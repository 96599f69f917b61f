"""The threshold at which a token's verdict flips, enclosed by proofs on both sides.

    c* = max over λ of (p̂ᵢ − N)/P,   N = Σ p̂s⁻,  P = Σ p̂s⁺,  s = W̃λ, sᵢ = 1          τ* = c*/(1 + c*)

One λ proves acceptance for every c below (p̂ᵢ − N)/P, and one y rejection for every c from max yⱼ/p̂ⱼ on:
each certificate moves its side of the bracket further than to the c that was asked about. Accepting gets
harder as c grows, so the bracket is halved (in log c) until it is narrow enough.

Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from math import inf, sqrt

import numpy as np

from unspool.basis.arrays import checked_token, real, shown
from unspool.basis.basis_step import BasisStep
from unspool.basis.certificate import Acceptance, Rejection

TESTS = 60


def critical_tau(step: BasisStep, i: int, rtol: float = 1e-3) -> tuple[float, float]:
    """(τ accepted, τ rejected) with at most 1 + rtol between them, or as near as proofs can be had."""
    width = real(rtol)
    if width is None or not 0 < width < 1:
        raise (TypeError if width is None else ValueError)(
            f"rtol is {shown(rtol)}; it is the relative width of the bracket, between 0 and 1."
        )
    i = checked_token(i, step.distribution.vocabulary)
    p_i = float(step.distribution.p[i])
    low, high = p_i / (1 - p_i) if p_i < 1 else inf, inf
    ask = 2 * low
    for _ in range(TESTS):
        if not ask < 1e12:
            break
        verdict = step.accepts(i, tau=ask / (1 + ask))
        match verdict.certificate:
            case Acceptance() as proof:
                low = max(low, ask, step.accepted_up_to(proof) * (1 - 1e-9))
            case Rejection() as proof:
                high = min(
                    high, ask, max(float(np.max(proof.shift_N / step.distribution.p[proof.rows_N])), 0.0)
                )
            case None:
                break
        if high <= low or tau_of(high) <= tau_of(low) * (1 + width):
            break
        ask = sqrt(low * high) if high < inf else 4 * low
    return tau_of(low), tau_of(high)


def tau_of(slope: float) -> float:
    """τ = c/(1 + c)."""
    return 1.0 if slope == inf else slope / (1 + slope)
