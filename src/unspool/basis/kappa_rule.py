"""κ: how many tokens share the mass, relative to the width of the model — and a rule that needs nothing else.

    Σⱼ min(1, κ p̂ⱼ) = m,   m = rank + 1;         the κ rule: accept i  ⇔  κ p̂ᵢ ℓᵢ ≥ g(c),   c = τ/(1 − τ)

κ is the scale of the closed-form Lewis weights in solver/lewis_metric.py. That it nearly decides the test
alone, whatever W is, is an observation of this project; the rule costs one partial sort and proves nothing.
ℓᵢ is 1, or the length of the token's own row (row_lengths.py), V numbers of W. g is fitted, one number per τ,
on distributions whose exact verdicts are known, and interpolated in log c between them. Where nothing was
fitted there is a formula for ℓ = 1,

    g ≈ 0.8·m^0.45·c^0.85, and c^0.4 in place of c^0.85 where c > 1

which was fitted on one model, SmolLM2 with 135 million parameters, at ranks from 20 to 576: beyond that it is
an extrapolation, which agreed with 99.5 % of the exact verdicts at rank 2,048 of another model.

The test that it imitates: Finlayson et al. 2024, §4.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unspool.basis.arrays import Array, checked_token, float64, masses, real, shown, whole
from unspool.basis.certificate import Verdict
from unspool.basis.row_lengths import RowLengths
from unspool.basis.theory import slope_from_tau


def kappa(p: ArrayLike, m: int) -> float:
    """The κ with Σ min(1, κp) = m; infinite where fewer than m tokens have any probability."""
    m = _checked_m(m)
    p_V = masses("p", p)
    parted_V = np.partition(p_V, len(p_V) - m) if m < len(p_V) else p_V
    head_N = np.sort(parted_V[-m:])[::-1]
    # The rest is summed by itself: 1 − Σ head would be rounding where the head holds nearly everything.
    return kappa_of_sorted(head_N, from_each_rank_on(head_N, float(parted_V[:-m].sum())), m)


def _checked_m(m: int) -> int:
    found = whole(m)
    if found is None or found < 1:
        raise (TypeError if found is None else ValueError)(
            f"m is {shown(m)}; it counts the equality constraints (rank + 1) and must be a whole number, at "
            f"least 1."
        )
    return found


def kappa_of_sorted(head_N: Array, beyond_N: Array, m: int) -> float:
    """κ from the largest probabilities, sorted, and the mass from each rank on (one entry more).

    If the r largest tokens saturate, κ = (m − r)/(mass of the others); r is the first rank where the next
    token then does not saturate.
    """
    count = min(len(head_N), m)
    if np.count_nonzero(head_N[:m]) < m:
        return inf
    with np.errstate(divide="ignore", over="ignore"):
        kappa_R = (m - np.arange(count)) / beyond_N[:count]
        fits_R = kappa_R * head_N[:count] <= 1
        return float(kappa_R[np.argmax(fits_R)]) if fits_R.any() else float(1 / head_N[count - 1])


def from_each_rank_on(values_N: Array, rest: float) -> Array:
    """Sums from each rank to the end, and the rest alone as the last entry."""
    sums_N = np.empty(len(values_N) + 1)
    sums_N[-1] = rest
    np.cumsum(values_N[::-1], out=sums_N[-2::-1])
    sums_N[:-1] += rest
    return sums_N


def typical_threshold(m: int, slope: float) -> float:
    """g(c) as a formula: see above for what it was fitted on."""
    return float(0.8 * m**0.45 * (slope**0.85 if slope < 1 else slope**0.4))


@dataclass(frozen=True)
class KappaRule:
    """Accept iff κ·p̂ᵢ·ℓᵢ ≥ g(c): g is linear between its knots in log c and log g, and beyond them."""

    m: int
    slopes: tuple[float, ...]
    """The c of each knot, rising."""
    thresholds: tuple[float, ...]
    """g at each knot."""
    lengths: RowLengths | None = None
    """ℓ, the row lengths that g was fitted with; None: ℓ = 1, and the rule needs nothing of W."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", _checked_m(self.m))
        for name in ("slopes", "thresholds"):
            given = getattr(self, name)
            found = tuple(map(real, given)) if isinstance(given, Sequence) else (None,)
            if any(it is None or not 0 < it < inf for it in found):
                raise (TypeError if None in found else ValueError)(
                    f"{name} is {shown(given)}; expected a tuple of numbers above 0, one per knot."
                )
            object.__setattr__(self, name, found)
        if self.lengths is not None and not isinstance(self.lengths, RowLengths):
            raise TypeError(f"lengths is {shown(self.lengths)}; expected RowLengths, or None for ℓ = 1.")
        if len(self.slopes) != len(self.thresholds) or not self.slopes:
            raise ValueError(
                f"{len(self.slopes)} slopes for {len(self.thresholds)} thresholds; one each is needed."
            )
        if list(self.slopes) != sorted(set(self.slopes)):
            raise ValueError(f"The slopes {self.slopes} must rise.")

    @classmethod
    def typical(cls, m: int) -> KappaRule:
        """The rule whose g is the formula: for a model that no rule was fitted to."""
        slopes = (1e-4, 1.0, 1e4)
        return cls(m, slopes, tuple(typical_threshold(m, slope) for slope in slopes))

    def threshold(self, tau: float) -> float:
        """g(c) at τ."""
        x, knots = log(slope_from_tau(tau)), np.log(self.slopes)
        g = np.log(self.thresholds)
        if len(knots) == 1:
            return float(self.thresholds[0])
        right = int(np.clip(np.searchsorted(knots, x), 1, len(knots) - 1))
        share = (x - knots[right - 1]) / (knots[right] - knots[right - 1])
        return exp(g[right - 1] + share * (g[right] - g[right - 1]))

    def mask(self, p: ArrayLike, tau: float) -> NDArray[np.bool_]:
        """Which tokens the rule accepts; p is (V,) or (N, V)."""
        p = float64(p)
        if p.ndim == 2 and len(p):
            return np.stack([self.mask(p_V, tau) for p_V in p])
        p = masses("p", p)
        return (p > 0) & (self._weighted(p) >= self.threshold(tau) / kappa(p, self.m))

    def step(self, p: ArrayLike) -> KappaStep:
        """Opinions on the tokens of one distribution (V,): `BasisTest.step`, without a proof."""
        p_V = masses("p", p)
        return KappaStep(self, self._weighted(p_V), kappa(p_V, self.m))

    def accepts(self, p: ArrayLike, i: int, tau: float) -> bool:
        """The rule's opinion of one token."""
        return bool(self.step(p).accepts(i, tau=tau))

    def _weighted(self, p_V: Array) -> Array:
        return p_V if self.lengths is None else p_V * self.lengths.of(len(p_V))


@dataclass(frozen=True)
class KappaStep:
    """What a rule says of one distribution."""

    rule: KappaRule
    weighted_V: Array
    """p̂·ℓ."""
    kappa: float

    def accepts(self, i: int, *, tau: float) -> Verdict:
        """A verdict without a certificate: nothing is proven."""
        i = checked_token(i, len(self.weighted_V))
        weighted = float(self.weighted_V[i])
        accepted = weighted > 0 and weighted >= self.rule.threshold(tau) / self.kappa
        return Verdict(accepted, i, tau, "kappa rule", None, 0.0, inf)
