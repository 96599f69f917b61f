"""The basis-aware test of an output matrix: exact, with proofs, at any rank.

    accept i  ⇔  no p with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, pᵢ = 0        W̃ = [W·V_r, 1],   τ = 1 − e^(−δ)

A model that minimises cross-entropy has Wᵀp* = Wᵀp̂ (Theorem 2): if every distribution that agrees with
that, and with the bound on the error, gives token i some probability, then the true one does. Rank 0 is
threshold sampling; at full rank most of what a threshold cuts is proven safe.

Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
Differs from the paper: p ≥ 0 is a constraint, and no general solver is used. See solver/cascade.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.basis.arrays import as_numpy, probabilities
from unspool.basis.basis_step import BasisStep
from unspool.basis.calibration import Calibration, calibrate_kappa
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.critical_tau import critical_tau
from unspool.basis.kappa_rule import kappa
from unspool.basis.linear_program import Reference, reference
from unspool.basis.row_lengths import RowLengths, row_lengths
from unspool.basis.solver.whitened_store import whitened
from unspool.basis.verification import check
from unspool.basis.work import BUDGET, checked_budget


class BasisTest:
    """The test for one output matrix W (V, d) at one rank (None: full).

    W may be a numpy array or memory map, or a torch tensor, of any float type and on any device; it is
    kept, not copied. With `cache`, a folder, what is made of W once (seconds, for a large one) is kept on
    disk for the next time. `budget` is the work that a test of one token may cost, in multiplications: after
    that it ends undecided (work.py; the default is about a second of one core, None is no limit).
    """

    def __init__(
        self,
        W: Any,
        rank: int | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        budget: float | None = BUDGET,
    ) -> None:
        self.budget = checked_budget(budget)
        self._white = whitened(W, rank, cache)
        self.vocabulary: int = self._white.weight.shape[0]
        self.rank: int = int((W if hasattr(W, "shape") else np.asarray(W)).shape[1]) if rank is None else rank

    def __repr__(self) -> str:
        return f"BasisTest(vocabulary={self.vocabulary}, rank={self.rank})"

    @property
    def m(self) -> int:
        """How many independent equalities there are: rank + 1, or fewer where W̃ has dependent columns."""
        return int(self._white.X_VK.shape[1])

    @property
    def weight(self) -> Any:
        """The rows that the test is about: W itself at full rank, W·V_r in float64 below it.

        They ask the same with fewer columns where others make some up, and in other units where those of W
        are beyond float64's squares, or hide in a constant how a column varies: see solver/columns.py.
        """
        return self._white.weight.W

    def within(self, budget: float | None) -> BasisTest:
        """The same test with another budget; what was made of W is shared."""
        other = copy(self)
        other.budget = checked_budget(budget)
        return self if other.budget == self.budget else other

    def step(self, p: Any) -> BasisStep:
        """The tests on one distribution (V,), sharing what can be shared."""
        return BasisStep(self._white, probabilities(p, self.vocabulary), self.budget)

    def accepts(self, p: Any, i: int, *, tau: float | None = None, delta: float | None = None) -> Verdict:
        """Whether token i is proven to have true probability; give the threshold τ or the error bound δ."""
        return self.step(p).accepts(i, tau=tau, delta=delta)

    def mask(
        self, p: Any, tau: float, *, top: int | None = None, floor: float | None = None
    ) -> NDArray[np.bool_]:
        """Which tokens are accepted, (V,) or (N, V) as p is.

        With `top` or `floor` only the most probable tokens are tested, and the others are False.
        """
        p = as_numpy(p)
        if p.ndim == 1:
            return self.step(p).mask(tau, top=top, floor=floor)
        return np.stack([self.step(p_V).mask(tau, top=top, floor=floor) for p_V in p])

    def critical_tau(self, p: Any, i: int, *, rtol: float = 1e-3) -> tuple[float, float]:
        """Two τ between which the verdict flips: proven accepted at the first, rejected at the second."""
        return critical_tau(self.step(p), i, rtol)

    def row_lengths(self, p: Any) -> RowLengths:
        """How far each token's row sticks out from those that compete with it in distributions p (N, V).

        This is what the κ rule may know of W (row_lengths.py); a hundred distributions do.
        """
        p = as_numpy(p)
        if p.ndim != 2 or not len(p):
            raise ValueError(f"p has shape {p.shape}; row lengths need distributions, (N, V).")
        share_V = np.zeros(self.vocabulary)
        for row_V in p:
            p_V = probabilities(row_V, self.vocabulary)
            # Where fewer than m tokens have any probability, κ is infinite, and 0·∞ no number.
            share_V += np.minimum(1, min(kappa(p_V, self.m), 1e300) * p_V)
        return row_lengths(self._white.X_VK, share_V)

    def calibrate_kappa(
        self,
        p: ArrayLike,
        taus: Sequence[float],
        *,
        tokens: int = 8,
        fit: float = 0.5,
        seed: int = 0,
        lengths: bool = True,
    ) -> Calibration:
        """Fit the κ rule to this test's verdicts on distributions p (N, V): see `calibrate_kappa`."""
        return calibrate_kappa(self, p, taus, tokens=tokens, fit=fit, seed=seed, lengths=lengths)

    def check(self, certificate: Acceptance | Rejection, p: ArrayLike, tau: float) -> bool:
        """Verify a certificate independently of how it was found."""
        return check(certificate, self.weight, p, tau)

    def reference(self, p: ArrayLike, i: int, tau: float) -> Reference:
        """Ask a general linear-programming solver (seconds to minutes on a real vocabulary)."""
        return reference(self.weight, p, i, tau)
