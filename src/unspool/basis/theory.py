"""Truncation theory, and verdicts of the basis-aware test with their certificates.

If log p is underestimated by at most δ, then p is overestimated by at most τ:

    log p* − log p̂ ≤ δ everywhere   ⇒   p̂ᵢ − p*ᵢ ≤ τ = 1 − e^(−δ)   ⇒   (p̂ᵢ > τ ⇒ p*ᵢ > 0)
    a model at its cross-entropy optimum   ⇒   Wᵀp* = Wᵀp̂

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2). papers.bib: finlayson2024closing

    F_i(c) = max{t : Σ_{j≠i} yⱼ w̃ⱼ = t·w̃ᵢ,  −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ} = min{f(λ) : w̃ᵢ·λ = 1}
    accept i  ⇔  F_i(c) < p̂ᵢ

λ and y are dual to each other, so either kind of certificate decides the test, independent of the method that
found it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, inf

from unspool.arguments import as_number
from unspool.basis.arrays import Array, Indices


def tau_from_delta(delta: float) -> float:
    """τ = 1 − e^(−δ), the largest possible overestimation of a probability (Theorem 1)."""
    return -expm1(-as_number("delta", delta, above=0, advice="It is a bound on log p* − log p̂."))


def slope_from_tau(tau: float) -> float:
    """c = e^δ − 1 = τ/(1 − τ), the largest relative excess of p* over p̂."""
    tau = check_tau(tau)
    return tau / (1 - tau)


def tau_from_slope(slope: float) -> float:
    """τ = c/(1 + c)."""
    return 1.0 if slope == inf else slope / (1 + slope)


def check_tau(tau: float) -> float:
    """τ as a float; raises an error unless 0 < τ < 1."""
    return as_number("tau", tau, above=0, below=1, advice="Common values are 0.001 … 0.5.")


@dataclass(frozen=True, eq=False)
class Acceptance:
    """λ proves that every distribution with W̃ᵀp = W̃ᵀp̂ and 0 ≤ p ≤ e^δ·p̂ gives the token p > 0."""

    token: int
    dual_M: Array
    """λ in coordinates of W̃ = [W, 1], scaled to w̃ᵢ·λ = 1."""


@dataclass(frozen=True, eq=False)
class Rejection:
    """A distribution with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂ that gives the token probability zero."""

    token: int
    rows_N: Indices
    shift_N: Array
    """y = p − p̂ on `rows_N`; p is 0 at the token and equals p̂ elsewhere."""


@dataclass(frozen=True)
class Verdict:
    """The result of testing one token; true if the token is proven to have p* > 0."""

    accepted: bool
    token: int
    tau: float
    method: str
    """"threshold", "least squares", "douglas-rachford" or "interior point"; "undecided" or "kappa rule" if
    there is no certificate."""
    certificate: Acceptance | Rejection | None
    low: float
    high: float
    """Bounds of F_i(c): low ≤ F_i(c) ≤ high."""
    work: float = 0.0
    """The cost in the unit of work.py."""

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def decided(self) -> bool:
        """True if there is a certificate, either way."""
        return self.certificate is not None
