"""Rows of symbols, drawn at random: what copying, reversing and sorting begin with.

n ~ uniform(shortest … longest),   x₁ … xₙ ~ uniform(0 … symbols − 1), written "3 1 4"
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from unspool.data.languages.known_language import check_count


@dataclass(frozen=True)
class Symbols:
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

    def draw(self, random: Random) -> list[int]:
        """One row."""
        length = random.randint(self.shortest, self.longest)
        return [random.randrange(self.symbols) for _ in range(length)]


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
