"""Rows of symbols, drawn at random, to be copied, reversed or sorted.

n ~ uniform(shortest … longest),   x₁ … xₙ ~ uniform(0 … symbols − 1), written "3 1 4"

copy       y = x₁ x₂ … xₙ
reverse    y = xₙ … x₂ x₁
sort       y₁ ≤ y₂ ≤ … ≤ yₙ, a permutation of x₁ … xₙ
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from random import Random

from unspool.data.languages.known_language import check_count


@dataclass(frozen=True)
class SymbolRows(ABC):
    """Whole numbers with spaces between them: a word each, or with ten of them also a character each."""

    symbols: int = 10
    """How many different ones there are."""
    shortest: int = 1
    """The fewest in a row."""
    longest: int = 10
    """The most in a row; each length is equally frequent."""

    def __post_init__(self) -> None:
        for name in ("symbols", "shortest", "longest"):
            check_count(name, getattr(self, name))
        if self.longest < self.shortest:
            raise ValueError(f"longest is {self.longest}, but shortest is {self.shortest}")

    @abstractmethod
    def answer(self, row: list[int]) -> list[int]:
        """What the task makes of a row."""

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        length = random.randint(self.shortest, self.longest)
        row = [random.randrange(self.symbols) for _ in range(length)]
        return written(row), written(self.answer(row))

    def truth(self, source: str) -> str:
        """The target."""
        return written(self.answer(read(source)))


@dataclass(frozen=True)
class Copying(SymbolRows):
    """Copy a row of symbols."""

    def answer(self, row: list[int]) -> list[int]:
        """The row itself."""
        return row


@dataclass(frozen=True)
class Reversing(SymbolRows):
    """Say a row of symbols backwards."""

    def answer(self, row: list[int]) -> list[int]:
        """The row, its last symbol first."""
        return row[::-1]


@dataclass(frozen=True)
class Sorting(SymbolRows):
    """Sort a row of symbols, the smallest first."""

    def answer(self, row: list[int]) -> list[int]:
        """The row in order."""
        return sorted(row)


def written(row: list[int]) -> str:
    """The row as text."""
    return " ".join(map(str, row))


def read(source: str) -> list[int]:
    """The row that a text writes."""
    words = source.split(" ")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(
            f"{source!r} is no row of symbols: write whole numbers with single spaces, as in 3 1 4"
        )
    return [int(word) for word in words]
