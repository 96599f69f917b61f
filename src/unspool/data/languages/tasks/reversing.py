"""Say a row of symbols backwards.

y = xₙ … x₂ x₁
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unspool.data.languages.tasks.symbols import Symbols, read, written


@dataclass(frozen=True)
class Reversing(Symbols):
    """Say a row of symbols backwards."""

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        row = self.draw(random)
        return written(row), written(row[::-1])

    def truth(self, source: str) -> str:
        """The target."""
        row = read(source)
        return written(row[::-1])
