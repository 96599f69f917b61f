"""The κ rule: a fast approximation of the basis-aware test that needs only p̂ and the rank.

    Σⱼ min(1, κ p̂ⱼ) = m,   m = rank + 1;         the κ rule: accept i  ⇔  κ p̂ᵢ ℓᵢ ≥ g(c),   c = τ/(1 − τ)

κ is the scale of the closed-form Lewis weights in solver/lewis_metric.py; it measures how many tokens share
the mass relative to the rank. It almost decides the test without W, an observation of this project. The
rule costs one partial sort and proves nothing. ℓᵢ is 1 or the row length of the token (`RowLengths`). g
is fitted, one number per τ, to exact verdicts and interpolated in log c. Without a fit, a formula for ℓ = 1
is used:

    g ≈ 0.8·m^0.45·c^0.85, with c^0.4 in place of c^0.85 if c > 1

It was fitted on SmolLM2-135M at ranks from 20 to 576. Beyond that it extrapolates; it agreed with 99.5 % of
the exact verdicts at rank 2,048 of another model.

It approximates the test of Finlayson et al. 2024, §4 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.arguments import as_int, as_number, items, set_fields, shown
from unspool.basis.arrays import Array, Array32, as_float64, as_masses
from unspool.basis.theory import Verdict, slope_from_tau


def kappa(p: ArrayLike, m: int) -> float:
    """The κ with Σ min(1, κp) = m; infinite if fewer than m tokens have p > 0."""
    m = as_int("m", m, at_least=1, advice="It is the number of equality constraints, rank + 1.")
    p_V = as_masses("p", p)
    parted_V = np.partition(p_V, len(p_V) - m) if m < len(p_V) else p_V
    head_N = np.sort(parted_V[-m:])[::-1]
    # The tail is summed directly: 1 − Σ head would lose it to rounding.
    return kappa_from_sorted(head_N, suffix_sums(head_N, float(parted_V[:-m].sum())), m)


def kappa_from_sorted(head_N: Array, tail_mass_N: Array, m: int) -> float:
    """κ from the sorted largest probabilities and the mass from each rank on (one entry more).

    If the r largest tokens saturate, κ = (m − r)/(mass of the others); r is the first rank for which the next
    token does not saturate.
    """
    count = min(len(head_N), m)
    if np.count_nonzero(head_N[:m]) < m:
        return inf
    with np.errstate(divide="ignore", over="ignore"):
        kappa_R = (m - np.arange(count)) / tail_mass_N[:count]
        fits_R = kappa_R * head_N[:count] <= 1
        return float(kappa_R[np.argmax(fits_R)]) if fits_R.any() else float(1 / head_N[count - 1])


def suffix_sums(values_N: Array, rest: float) -> Array:
    """Sums from each rank to the end, including `rest`, which is also the last entry."""
    sums_N = np.empty(len(values_N) + 1)
    sums_N[-1] = rest
    np.cumsum(values_N[::-1], out=sums_N[-2::-1])
    sums_N[:-1] += rest
    return sums_N


def typical_threshold(m: int, slope: float) -> float:
    """g(c) by the formula of the module docstring."""
    return float(0.8 * m**0.45 * (slope**0.85 if slope < 1 else slope**0.4))


BLOCK = 4096


@dataclass(frozen=True, eq=False, repr=False)
class RowLengths:
    """Row lengths: the norm of each token's row of W relative to the rows of competing tokens.

        ℓᵢ = √(xᵢᵀ G⁻¹ xᵢ / m),   G = ½ I + ½ Σⱼ qⱼ xⱼxⱼᵀ,   qⱼ = mean of min(1, κp̂ⱼ)/m over distributions

    x are the whitened rows of solver/whitening.py, (1/V) Σ xxᵀ = I. Half of G weighs all tokens equally, half
    weighs them by their mean leverage over the given distributions. The mean of ℓ² in this mixture is 1.
    `BasisTest.row_lengths` computes them for a model.

    Why: the ℓ₁ Lewis weight of the row p̂ᵢxᵢ is p̂ᵢ·√(xᵢᵀM⁻¹xᵢ), which is κp̂ᵢ for isotropic rows
    (solver/lewis_metric.py). M depends on p̂. Replacing it by G, a mean over distributions, reduces W to V
    numbers.

    Cohen & Peng 2015, §2 (Lewis weights and their fixed point). papers.bib: cohen2015lewis
    Differs from the paper: one round of the fixed point, in a metric that is the same for every distribution.
    """

    values_V: NDArray[Any]

    def __post_init__(self) -> None:
        values_V = as_float64(self.values_V)
        if values_V.ndim != 1 or not len(values_V):
            raise ValueError(f"row lengths have shape {values_V.shape}; expected one per token, (V,)")
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected below
            kept_V = values_V.astype(np.float32)
        wrong_V = ~(np.isfinite(kept_V) & (kept_V > 0))
        if wrong_V.any():
            i = int(np.argmax(wrong_V))
            raise ValueError(
                f"the row length of token {i} is {values_V[i]}; expected positive, finite numbers from "
                f"BasisTest(W, rank).row_lengths(p)"
            )
        kept_V.setflags(write=False)
        object.__setattr__(self, "values_V", kept_V)

    def for_vocabulary(self, vocabulary: int) -> Array32:
        """ℓ as an array; raises ValueError if the model has another vocabulary size."""
        if len(self.values_V) != vocabulary:
            raise ValueError(
                f"row lengths for {len(self.values_V)} tokens do not fit probabilities of {vocabulary}: use "
                f"BasisTest(W, rank).row_lengths(p) of the same model"
            )
        return self.values_V

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowLengths) and np.array_equal(self.values_V, other.values_V)

    def __hash__(self) -> int:
        return hash(self.values_V.tobytes())

    def __repr__(self) -> str:
        low, high = self.values_V.min(), self.values_V.max()
        return f"RowLengths({len(self.values_V)} tokens, {low:.2g} … {high:.2g})"


def compute_row_lengths(X_VK: Array32, share_V: Array) -> RowLengths:
    """ℓ from whitened rows and the (unnormalised) leverage shares q."""
    vocabulary, m = X_VK.shape
    q_V = share_V / share_V.sum()
    metric_KK = 0.5 * np.eye(m)
    for start in range(0, vocabulary, BLOCK):
        X_BK = X_VK[start : start + BLOCK]
        scaled_BK = X_BK * q_V[start : start + BLOCK, None].astype(np.float32)
        metric_KK += 0.5 * (X_BK.T @ scaled_BK)
    root_KK = np.linalg.inv(np.linalg.cholesky(metric_KK)).T.astype(np.float32)
    length_V = np.empty(vocabulary)
    for start in range(0, vocabulary, BLOCK):
        turned_BK = X_VK[start : start + BLOCK] @ root_KK
        length_V[start : start + BLOCK] = np.sqrt(np.einsum("bk,bk->b", turned_BK, turned_BK) / m)
    return RowLengths(length_V)


@dataclass(frozen=True)
class KappaRule:
    """Accept iff κ·p̂ᵢ·ℓᵢ ≥ g(c); log g is piecewise linear in log c, and extrapolated beyond the knots."""

    m: int
    slopes: tuple[float, ...]
    """The c of each knot, increasing."""
    thresholds: tuple[float, ...]
    lengths: RowLengths | None = None
    """ℓ, the row lengths that g was fitted with; None means ℓ = 1."""

    def __post_init__(self) -> None:
        advice = "It is the number of equality constraints, rank + 1."
        set_fields(self, m=as_int("m", self.m, at_least=1, advice=advice))
        for name in ("slopes", "thresholds"):
            given = items(name, getattr(self, name), "a list of numbers, one for each knot")
            values = [as_number(name, one, above=0, advice="Give one for each knot.") for one in given]
            set_fields(self, **{name: tuple(map(float, values))})
        if self.lengths is not None and not isinstance(self.lengths, RowLengths):
            raise TypeError(f"lengths is {shown(self.lengths)}; expected RowLengths, or None for ℓ = 1")
        is_increasing = list(self.slopes) == sorted(set(self.slopes))
        if not self.slopes or len(self.slopes) != len(self.thresholds) or not is_increasing:
            raise ValueError(
                f"slopes are {self.slopes} and thresholds {self.thresholds}; expected increasing slopes and "
                "one threshold for each"
            )

    @classmethod
    def typical(cls, m: int) -> KappaRule:
        """The rule with g from the formula, for a model without a fitted rule."""
        slopes = (1e-4, 1.0, 1e4)
        return cls(m, slopes, tuple(typical_threshold(m, slope) for slope in slopes))

    def threshold(self, tau: float) -> float:
        """g(c) at τ."""
        x, knots, g = log(slope_from_tau(tau)), np.log(self.slopes), np.log(self.thresholds)
        if len(knots) == 1:
            return self.thresholds[0]
        right = int(np.clip(np.searchsorted(knots, x), 1, len(knots) - 1))
        share = (x - knots[right - 1]) / (knots[right] - knots[right - 1])
        return exp(g[right - 1] + share * (g[right] - g[right - 1]))

    def step(self, p: ArrayLike) -> KappaStep:
        """The rule on one distribution (V,), with the interface of `BasisTest.step`."""
        p_V = as_masses("p", p)
        weighted_V = p_V if self.lengths is None else p_V * self.lengths.for_vocabulary(len(p_V))
        return KappaStep(self, weighted_V, kappa(p_V, self.m))


@dataclass(frozen=True)
class KappaStep:
    """The κ rule applied to one distribution."""

    rule: KappaRule
    weighted_V: Array
    """p̂·ℓ."""
    kappa: float

    def accepts(self, i: int, *, tau: float) -> Verdict:
        i = as_int("token", i, at_least=0, at_most=len(self.weighted_V) - 1)
        weighted = float(self.weighted_V[i])
        accepted = weighted > 0 and weighted >= self.rule.threshold(tau) / self.kappa
        return Verdict(accepted, i, tau, "kappa rule", None, 0.0, inf)
