"""The basis-aware test of an output matrix: exact verdicts with certificates, at any rank.

    accept i  ⇔  no p with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, pᵢ = 0        W̃ = [W·V_r, 1],   τ = 1 − e^(−δ)

A model that minimises cross-entropy has Wᵀp* = Wᵀp̂ (Theorem 2). If every distribution that satisfies this
and the error bound gives token i a positive probability, then so does the true one. Rank 0 is threshold
sampling; at full rank most tokens below the threshold are accepted.

Finlayson et al. 2024, §4 (papers.bib: finlayson2024closing).
Differs from the paper: p ≥ 0 is a constraint, and a specialised solver (solver/cascade.py) replaces a
general one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from copy import copy
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.arguments import as_int, as_number, items
from unspool.basis.arrays import Array, as_distribution, as_numpy
from unspool.basis.calibration import Calibration, collect_verdicts
from unspool.basis.kappa_rule import RowLengths, compute_row_lengths, kappa
from unspool.basis.linear_program import LinearProgramSolution, solve_linear_program
from unspool.basis.solver.cascade import Cascade
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.proof_attempts import SharedFactors
from unspool.basis.solver.whitening import WhitenedMatrix, load_or_whiten
from unspool.basis.theory import Acceptance, Rejection, Verdict, check_tau, tau_from_slope
from unspool.basis.verifier import verify_certificate
from unspool.basis.work import DEFAULT_BUDGET

# Tokens searched in parallel; more would not fit the processor's cache.
MAX_TOKENS_PER_BATCH = 128
# Tests per call of `critical_tau`.
MAX_BISECTIONS = 60


class BasisStep:
    """The test on one next-token distribution; shares factors between tokens and caches verdicts.

    Created by `BasisTest.step`.
    """

    def __init__(self, whitened: WhitenedMatrix, p_V: Array, budget: float = inf) -> None:
        self._factors = SharedFactors(whitened, p_V)
        self._budget = budget
        self._verdicts: dict[tuple[int, float], Verdict] = {}

    @property
    def distribution(self) -> Distribution:
        """The normalised p̂ with its sorted head."""
        return self._factors.dist

    def accepts(self, i: int, *, tau: float) -> Verdict:
        """Test whether token i provably has p* > 0, given the threshold τ."""
        return self.verdicts([i], tau=tau)[0]

    def verdicts(self, tokens: Iterable[int], *, tau: float) -> list[Verdict]:
        tau = check_tau(tau)
        wanted = [self._check_token(i) for i in items("tokens", tokens, "token ids, such as [3, 17]")]
        for i in wanted:
            if not self.distribution.p[i] > 0:
                raise ValueError(f"token {i} has probability zero: it cannot be sampled or tested")
        new = [i for i in dict.fromkeys(wanted) if (i, tau) not in self._verdicts]
        for start in range(0, len(new), MAX_TOKENS_PER_BATCH):
            part = np.array(new[start : start + MAX_TOKENS_PER_BATCH], dtype=np.intp)
            for verdict in Cascade(self._factors, part, tau, self._budget).verdicts():
                self._verdicts[verdict.token, tau] = verdict
        return [self._verdicts[i, tau] for i in wanted]

    def mask(self, tau: float, *, top: int | None = None) -> NDArray[np.bool_]:
        """The accepted tokens among the `top` most probable (None: all), as a mask (V,)."""
        dist = self.distribution
        n = dist.support
        if top is not None:
            n = min(n, as_int("top", top, at_least=1, advice="None is all tokens."))
        dist.extend_head(n)
        tokens = dist.order_N[:n]
        out_V = np.zeros(dist.vocabulary, dtype=bool)
        out_V[tokens] = [verdict.accepted for verdict in self.verdicts(tokens, tau=tau)]
        return out_V

    def max_accepted_slope(self, proof: Acceptance) -> float:
        """The c below which this λ proves acceptance: (p̂ᵢ − Σp̂s⁻)/Σp̂s⁺ over the other tokens."""
        s_V = self._factors.whitened.project(proof.dual_M[:, None])[:, 0]
        p_V = self.distribution.p.copy()
        p_i, p_V[proof.token] = p_V[proof.token], 0
        s_V /= s_V[proof.token]
        above = float(p_V @ np.maximum(s_V, 0))
        return float(p_i - p_V @ np.maximum(-s_V, 0)) / above if above > 0 else inf

    def critical_tau(self, i: int, *, rtol: float = 1e-3) -> tuple[float, float]:
        """Bracket the threshold at which a token's verdict flips: (τ accepted, τ rejected).

            c* = max over λ of (p̂ᵢ − N)/P,   N = Σ p̂s⁻,  P = Σ p̂s⁺,  s = W̃λ, sᵢ = 1          τ* = c*/(1 + c*)

        One λ proves acceptance for every c below (p̂ᵢ − N)/P, and one y rejection for every c ≥ max yⱼ/p̂ⱼ, so
        each certificate tightens the bracket beyond the tested c. The bracket is bisected in log c until its
        ends differ by a factor of at most 1 + rtol, or until a test is undecided.
        """
        width = as_number("rtol", rtol, above=0, below=1, advice="It is the relative width of the bracket.")
        p_V = self.distribution.p
        i = self._check_token(i)
        low, high = p_V[i] / (1 - p_V[i]) if p_V[i] < 1 else inf, inf
        slope = 2 * low
        for _ in range(MAX_BISECTIONS):
            if not slope < 1e12:
                break
            match self.accepts(i, tau=tau_from_slope(slope)).certificate:
                case Acceptance() as proof:
                    low = max(low, slope, self.max_accepted_slope(proof) * (1 - 1e-9))
                case Rejection() as proof:
                    high = min(high, slope, max(float(np.max(proof.shift_N / p_V[proof.rows_N])), 0.0))
                case None:
                    break
            if high <= low or tau_from_slope(high) <= tau_from_slope(low) * (1 + width):
                break
            slope = sqrt(low * high) if high < inf else 4 * low
        return tau_from_slope(low), tau_from_slope(high)

    def _check_token(self, i: Any) -> int:
        return as_int("token", i, at_least=0, at_most=self.distribution.vocabulary - 1)


class BasisTest:
    """The basis-aware test for an output matrix W (V, d) at one rank (None: full rank).

    W may be a numpy array, a memory map or a torch tensor of any float type on any device; it is not
    copied. `cache` is a folder for the whitened matrix, which takes seconds to compute for a large W.
    `budget` limits the cost of testing one token, in multiplications (work.py); beyond it the verdict is
    "undecided". The default is about a second on one core, None means no limit.
    """

    def __init__(
        self,
        W: Any,
        rank: int | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        budget: float | None = DEFAULT_BUDGET,
    ) -> None:
        self.budget = _check_budget(budget)
        self._whitened = load_or_whiten(W, rank, cache)
        self.vocabulary: int = self._whitened.weight.shape[0]
        self.rank: int = int((W if hasattr(W, "shape") else np.asarray(W)).shape[1]) if rank is None else rank

    def __repr__(self) -> str:
        return f"BasisTest(vocabulary={self.vocabulary}, rank={self.rank})"

    @property
    def m(self) -> int:
        """The number of independent equalities: rank + 1, or fewer if W̃ has dependent columns."""
        return int(self._whitened.X_VK.shape[1])

    @property
    def weight(self) -> Any:
        """The tested matrix: W at full rank, otherwise W·V_r in float64.

        Dependent columns are dropped and badly scaled ones rescaled, which does not change the test
        (solver/whitening.py).
        """
        return self._whitened.weight.W

    def with_budget(self, budget: float | None) -> BasisTest:
        other = copy(self)
        other.budget = _check_budget(budget)
        return self if other.budget == self.budget else other

    def step(self, p: Any) -> BasisStep:
        """The test on one distribution (V,)."""
        return BasisStep(self._whitened, as_distribution(p, self.vocabulary), self.budget)

    def accepts(self, p: Any, i: int, *, tau: float) -> Verdict:
        """Test whether token i provably has p* > 0, given the threshold τ = 1 − e^(−δ) (`tau_from_delta`)."""
        return self.step(p).accepts(i, tau=tau)

    def mask(self, p: Any, tau: float, *, top: int | None = None) -> NDArray[np.bool_]:
        """The accepted tokens as a mask with the shape of p, (V,) or (N, V).

        Only the `top` most probable tokens are tested; the others are False.
        """
        p = as_numpy(p)
        if p.ndim == 1:
            return self.step(p).mask(tau, top=top)
        return np.stack([self.step(p_V).mask(tau, top=top) for p_V in p])

    def critical_tau(self, p: Any, i: int, *, rtol: float = 1e-3) -> tuple[float, float]:
        """Two τ between which the verdict flips: accepted at the first, rejected at the second."""
        return self.step(p).critical_tau(i, rtol=rtol)

    def row_lengths(self, p: Any) -> RowLengths:
        """Row lengths for the κ rule, from distributions p (N, V); about a hundred are enough."""
        p = as_numpy(p)
        if p.ndim != 2 or not len(p):
            raise ValueError(f"p has shape {p.shape}; expected distributions, (N, V)")
        share_V = np.zeros(self.vocabulary)
        for row_V in p:
            p_V = as_distribution(row_V, self.vocabulary)
            # κ is infinite if fewer than m tokens have p > 0; 0·∞ would be NaN.
            share_V += np.minimum(1, min(kappa(p_V, self.m), 1e300) * p_V)
        return compute_row_lengths(self._whitened.X_VK, share_V)

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
        """Fit the κ rule to verdicts of this test on the first share `fit` of the distributions p (N, V).

        Per distribution and τ, `tokens` tokens below τ are drawn from p̂. With `lengths` the rule includes the
        row lengths ℓ, computed from W and the fitted distributions; otherwise ℓ = 1. They are the default
        because they improve the agreement at rank 100 of SmolLM2 (docs/results/basis.md); at ranks 20 and 576
        they make little difference. Warns if the rule is not better than `KappaRule.typical`.
        """
        result = collect_verdicts(self, p, taus, tokens=tokens, seed=seed).calibrate(fit=fit, lengths=lengths)
        comparison = result.comparison
        if not comparison.is_better:
            warnings.warn(
                f"the fitted κ rule is not better than KappaRule.typical({self.m}): in cross-validation on "
                f"{comparison.verdicts} verdicts they agree with the exact test on {comparison.fitted:.1%} "
                f"and {comparison.formula:.1%}; use the formula (BasisAware's default) or fit more "
                "distributions",
                UserWarning,
                stacklevel=2,
            )
        return result

    def verify(self, certificate: Acceptance | Rejection, p: ArrayLike, tau: float) -> bool:
        """Verify a certificate independently of the solver."""
        return verify_certificate(certificate, self.weight, p, tau)

    def solve_linear_program(self, p: ArrayLike, i: int, tau: float) -> LinearProgramSolution:
        """Solve the test with HiGHS (seconds to minutes on a real vocabulary)."""
        return solve_linear_program(self.weight, p, i, tau)


def _check_budget(budget: float | None) -> float:
    advice = f"It counts operations ({DEFAULT_BUDGET:g} is about 1 s); None is no limit."
    return inf if budget is None else float(as_number("budget", budget, above=0, advice=advice))
