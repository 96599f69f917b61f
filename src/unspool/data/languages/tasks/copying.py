"""Copy a row of symbols.

y = x₁ x₂ … xₙ
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unspool.data.languages.tasks.symbols import Symbols, read, written


@dataclass(frozen=True)
class Copying(Symbols):
    """Copy a row of symbols."""

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        row = self.draw(random)
        return written(row), written(row)

    def truth(self, source: str) -> str:
        """The target."""
        row = read(source)
        return written(row)
