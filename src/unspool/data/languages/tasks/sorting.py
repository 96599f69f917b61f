"""Sort a row of symbols, the smallest first.

y₁ ≤ y₂ ≤ … ≤ yₙ, a permutation of x₁ … xₙ
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unspool.data.languages.tasks.symbols import Symbols, read, written


@dataclass(frozen=True)
class Sorting(Symbols):
    """Sort a row of symbols, the smallest first."""

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        row = self.draw(random)
        return written(row), written(sorted(row))

    def truth(self, source: str) -> str:
        """The target."""
        row = read(source)
        return written(sorted(row))
