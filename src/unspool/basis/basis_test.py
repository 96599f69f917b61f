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
from collections.abc import Iterable, Sequence
from copy import copy
from math import inf, isnan, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.basis.arrays import Array, Indices, as_numpy, checked_token, probabilities, real, shown, whole
from unspool.basis.calibration import Calibration, calibrate_kappa
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.kappa_rule import kappa
from unspool.basis.linear_program import Reference, reference
from unspool.basis.row_lengths import RowLengths, row_lengths
from unspool.basis.solver.cascade import Cascade
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.proof_attempts import SharedFactors
from unspool.basis.solver.whitening import Whitened, whitened
from unspool.basis.theory import the_tau
from unspool.basis.verifier import check
from unspool.basis.work import BUDGET, checked_budget

# So many tokens are searched side by side: more would not fit the processor's cache.
SIDE_BY_SIDE = 128


class BasisStep:
    """Tests the tokens of one next-token distribution. Made by `BasisTest.step`.

    All tests on one distribution: what they share is made once, and no token is tested twice.

        accept i  ⇔  no p with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, pᵢ = 0

    Finlayson et al. 2024, §4 (basis-aware threshold).
    papers.bib: finlayson2024closing
    """

    def __init__(self, white: Whitened, p_V: Array, budget: float = inf) -> None:
        self._factors = SharedFactors(white, p_V)
        self._budget = budget
        self._verdicts: dict[tuple[int, float], Verdict] = {}

    @property
    def distribution(self) -> Distribution:
        """p̂, normalised, with its head sorted."""
        return self._factors.dist

    @property
    def kappa(self) -> float:
        """The κ of p̂ at this rank."""
        return self._factors.dist.kappa

    def accepts(self, i: int, *, tau: float | None = None, delta: float | None = None) -> Verdict:
        """Whether token i is proven to have true probability; give the threshold τ or the error bound δ."""
        return self.verdicts([i], tau=tau, delta=delta)[0]

    def verdicts(
        self, tokens: Iterable[int], *, tau: float | None = None, delta: float | None = None
    ) -> Sequence[Verdict]:
        """The verdicts on several tokens, which are searched side by side."""
        tau = the_tau(tau, delta)
        tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        if isinstance(tokens, str | bytes | type) or not isinstance(tokens, Iterable):
            raise TypeError(f"tokens is {shown(tokens)}; expected the numbers of tokens, such as [3, 17].")
        wanted = [self._checked(i) for i in tokens]
        new = [i for i in dict.fromkeys(wanted) if (i, tau) not in self._verdicts]
        for start in range(0, len(new), SIDE_BY_SIDE):
            part = np.array(new[start : start + SIDE_BY_SIDE], dtype=np.intp)
            for verdict in Cascade(self._factors, part, tau, self._budget).verdicts():
                self._verdicts[verdict.token, tau] = verdict
        return [self._verdicts[i, tau] for i in wanted]

    def mask(self, tau: float, *, top: int | None = None, floor: float | None = None) -> NDArray[np.bool_]:
        """Which tokens are accepted: of all, of the `top` most probable, of those with `floor` or more."""
        tokens = self._among(top, floor)
        out_V = np.zeros(self.distribution.vocabulary, dtype=bool)
        out_V[tokens] = [verdict.accepted for verdict in self.verdicts(map(int, tokens), tau=tau)]
        return out_V

    def accepted_up_to(self, proof: Acceptance) -> float:
        """The c below which a λ proves acceptance: (p̂ᵢ − Σp̂s⁻)/Σp̂s⁺ over the other tokens."""
        s_V = self._factors.white.project(proof.slopes_M[:, None])[:, 0]
        p_V = self.distribution.p.copy()
        goal, p_V[proof.token] = p_V[proof.token], 0
        s_V /= s_V[proof.token]
        above = float(p_V @ np.maximum(s_V, 0))
        return float(goal - p_V @ np.maximum(-s_V, 0)) / above if above > 0 else np.inf

    def _among(self, top: int | None, floor: float | None) -> Indices:
        dist = self.distribution
        count, least = whole(top), real(floor)
        if top is not None and (count is None or count < 1):
            raise (TypeError if count is None else ValueError)(
                f"top is {shown(top)}; at least one token must be asked about (None asks about all)."
            )
        if floor is not None and (least is None or isnan(least)):
            raise (TypeError if least is None else ValueError)(
                f"floor is {shown(floor)}; expected the least probability to ask about, or None for any."
            )
        dist.extend(dist.support if count is None else min(count, dist.vocabulary))
        tokens = dist.order_N[:count]
        return tokens if least is None else tokens[dist.p[tokens] >= least]

    def _checked(self, i: int) -> int:
        i = checked_token(i, self.distribution.vocabulary)
        if not self.distribution.p[i] > 0:
            raise ValueError(
                f"Token {i} has probability zero: there is nothing to test, it cannot be sampled."
            )
        return i


# The threshold at which a token's verdict flips, enclosed by proofs on both sides.
#
#     c* = max over λ of (p̂ᵢ − N)/P,   N = Σ p̂s⁻,  P = Σ p̂s⁺,  s = W̃λ, sᵢ = 1          τ* = c*/(1 + c*)
#
# One λ proves acceptance for every c below (p̂ᵢ − N)/P, and one y rejection for every c from max yⱼ/p̂ⱼ on:
# each certificate moves its side of the bracket further than to the c that was asked about. Accepting gets
# harder as c grows, so the bracket is halved (in log c) until it is narrow enough.
#
# Finlayson et al. 2024, §4.
# papers.bib: finlayson2024closing


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
