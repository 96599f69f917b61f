"""Zipf's law: the frequency of a word falls as a power of its rank.

    p(r) = r^(−a) / Σ_{q ≤ n} q^(−a),   r = 1 … n

Paper: Zipf 1949, chapter 2 (papers.bib: zipf1949human), where a = 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def zipf(n: int, exponent: float = 1.0) -> NDArray[np.float64]:
    """The probabilities of ranks 1 … n, (n,)."""
    if n < 1:
        raise ValueError(f"n is {n}; Zipf's law needs at least one rank")
    if not math.isfinite(exponent) or exponent < 0.0:
        raise ValueError(f"exponent is {exponent}; it must be a number, at least 0 (all ranks alike)")
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def cumulated(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ_{q ≤ r} p(q), exactly 1 at the end: a number below 1 always falls on some rank."""
    sums: NDArray[np.float64] = shares.cumsum()
    sums[-1] = 1.0
    return sums
