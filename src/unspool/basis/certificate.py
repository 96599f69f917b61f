"""Verdicts of the basis-aware test and their certificates.

    F_i(c) = max{t : Σ_{j≠i} yⱼ w̃ⱼ = t·w̃ᵢ,  −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ} = min{f(λ) : w̃ᵢ·λ = 1}
    accept i  ⇔  F_i(c) < p̂ᵢ

Finlayson et al. 2024, §4; λ and y are dual to each other, so either kind of certificate decides the test,
independent of the method that found it.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from dataclasses import dataclass

from unspool.basis.arrays import Array, Indices


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
    """A lower bound on F_i(c)."""
    high: float
    """An upper bound on F_i(c)."""
    work: float = 0.0
    """The cost in the unit of work.py."""

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def decided(self) -> bool:
        """True if there is a certificate, either way."""
        return self.certificate is not None
