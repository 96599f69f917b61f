"""How the share of right tokens falls while a model learns to go on from its own.

    linear            ε_i = max(ε, k − c·i)
    exponential       ε_i = kⁱ
    inverse_sigmoid   ε_i = k / (k + exp(i/k))

Bengio et al. 2015, §2.4 (papers.bib: bengio2015scheduled). i is the number of updates so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Linear:
    """From `begin` down by `slope` an update, to `floor`."""

    begin: float = 1.0
    slope: float = 1e-3
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= self.begin <= 1.0:
            raise ValueError(f"floor={self.floor} and begin={self.begin} must be 0 ≤ floor ≤ begin ≤ 1")
        if not 0.0 <= self.slope < math.inf:
            raise ValueError(f"slope={self.slope} must be at least 0, and finite")

    def __call__(self, update: int) -> float:
        """max(ε, k − c·i)."""
        return max(self.floor, self.begin - self.slope * update)


@dataclass(frozen=True)
class Exponential:
    """Times k an update."""

    k: float = 0.999

    def __post_init__(self) -> None:
        if not 0.0 <= self.k <= 1.0:
            raise ValueError(f"k={self.k} must be from 0 to 1")

    def __call__(self, update: int) -> float:
        """kⁱ."""
        return float(self.k**update)


@dataclass(frozen=True)
class InverseSigmoid:
    """Slow at first, then fast, then slow: half is reached at k·ln k updates."""

    k: float = 100.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.k < math.inf:
            raise ValueError(f"k={self.k} must be at least 1, and finite")

    def __call__(self, update: int) -> float:
        """k / (k + exp(i/k))."""
        grown = update / self.k
        return self.k / (self.k + math.exp(grown)) if grown < 700 else 0.0


DECAYS: dict[str, type[Any]] = {
    "exponential": Exponential,
    "inverse_sigmoid": InverseSigmoid,
    "linear": Linear,
}
