"""The basis-aware test on three tokens: the true distributions that a model's output allows.

    p̂ = softmax(W h);   F = { p : Wᵀp = Wᵀp̂,  0 ≤ p ≤ e^δ p̂,  Σp = 1 }
    token i may be impossible  ⇔  some p ∈ F has pᵢ = 0

With three tokens and a hidden state of one number, the outputs of a model form a curve, and F is a segment of
a straight line: p̂ + t·n with n orthogonal to W and to (1, 1, 1).

Finlayson et al. 2024, figures 2 and 3. papers.bib: finlayson2024closing
Symbols: W is `weights`, h `hidden`, δ `delta`, F the segment between `ends`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import as_number, items, shown
from unspool.basis import tau_from_delta

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Feasible:
    """The distributions that may be true if a model of three tokens outputs p̂."""

    weights: Array
    p: Array
    """p̂."""
    upper: Array
    """e^δ·p̂, at most 1: the bound on the error."""
    ends: tuple[Array, Array]
    """The two ends of the segment F."""
    line: tuple[Array, Array]
    """The two ends of { Wᵀp = Wᵀp̂ } in the simplex: F without the bound on the error."""
    tau: float
    """1 − e^(−δ)."""

    @property
    def may_be_zero(self) -> tuple[bool, ...]:
        """For each token, whether F contains a distribution without it."""
        return tuple(bool(min(end[i] for end in self.ends) == 0) for i in range(3))


def feasible(
    weights: tuple[float, float, float] = (0.55, 0.71, 0.29), hidden: float = 2.55, delta: float = log(1.9)
) -> Feasible:
    """Compute F for one hidden state; the defaults are the example of the paper."""
    tau, hidden = tau_from_delta(delta), as_number("hidden", hidden, advice="It is the hidden state.")
    numbers = items("weights", weights, "three numbers")
    w = np.array(
        [as_number("weights", weight, advice="Give three numbers.") for weight in numbers], dtype=float
    )
    if w.shape != (3,) or np.ptp(w) == 0:
        raise ValueError(f"weights is {shown(weights)}, but must be three numbers that are not all equal")
    logits = w * hidden
    p = np.exp(logits - logits.max())
    p /= p.sum()
    direction = np.cross(w, np.ones(3))
    upper = np.minimum(exp(min(delta, 700.0)) * p, 1.0)  # e^700 is near the largest float
    ends = _segment(p, direction, np.zeros(3), upper)
    return Feasible(w, p, upper, ends, _segment(p, direction, np.zeros(3), np.ones(3)), tau)


def _segment(p: Array, direction: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the ends of p + t·direction within the box."""
    moving = direction != 0
    bounds = np.stack([(low - p)[moving] / direction[moving], (high - p)[moving] / direction[moving]])
    ends = []
    for t in (bounds.min(axis=0).max(), bounds.max(axis=0).min()):
        end = p + t * direction
        end[np.abs(end) < 1e-12] = 0.0
        ends.append(end)
    return ends[0], ends[1]
