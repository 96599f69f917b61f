"""What a test hands back: a verdict, its proof, and what the proof cost.

    F_i(c) = max{t : Σ_{j≠i} yⱼ w̃ⱼ = t·w̃ᵢ,  −p̂ⱼ ≤ yⱼ ≤ c·p̂ⱼ} = min{f(λ) : w̃ᵢ·λ = 1}
    accept i  ⇔  F_i(c) < p̂ᵢ

Finlayson et al. 2024, §4; λ and y are the two sides of linear-programming duality, so either kind of
certificate settles the question for good, however it was found.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unspool.basis.arrays import Array, Indices, as_numpy, probabilities


@dataclass(frozen=True, eq=False)
class Acceptance:
    """λ, which proves that no distribution allowed by the model's optimality makes the token impossible."""

    token: int
    slopes_M: Array
    """λ in the coordinates of W̃ = [W, 1], scaled so that w̃ᵢ·λ = 1."""


@dataclass(frozen=True, eq=False)
class Rejection:
    """A distribution that the model's optimality allows and that gives the token probability zero."""

    token: int
    rows_N: Indices
    shift_N: Array
    """y: what the distribution has more than p̂ on `rows_N`; it is p̂ elsewhere, and 0 at the token."""

    def distribution(self, p: ArrayLike) -> Array:
        """The distribution itself: W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, and zero at the token."""
        out_V = probabilities(p, int(np.size(as_numpy(p))))
        if max(self.token, *self.rows_N.tolist()) >= len(out_V):
            raise ValueError(f"p has {len(out_V)} entries, fewer than the rows that the certificate names.")
        out_V[self.rows_N] += self.shift_N
        out_V[self.token] = 0
        return out_V


@dataclass(frozen=True)
class Verdict:
    """Whether the token is proven to have true probability: true if so, false if refuted or left open."""

    accepted: bool
    token: int
    tau: float
    how: str
    """"threshold", "least squares", "douglas-rachford", "interior point"; without a proof "undecided", or
    "kappa rule" where only that was asked."""
    certificate: Acceptance | Rejection | None
    low: float
    """F_i(c) is at least this …"""
    high: float
    """… and at most this; the token is accepted if F_i(c) is less than its probability."""
    iterations: int = 0
    rows: int = 0
    """Rows of W̃ looked at to evaluate bounds, counted once per evaluation."""
    seconds: float = 0.0
    work: float = 0.0
    """Multiplications, as work.py counts them."""

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def decided(self) -> bool:
        """Whether there is a proof, either way."""
        return self.certificate is not None
