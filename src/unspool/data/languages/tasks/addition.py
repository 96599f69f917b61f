"""Add two numbers, in digits: "23+45" → "68", or from right to left "86".

    y = a + b,   a and b of 1 … `digits` digits

From right to left every digit of the sum follows from two digits and a carry; from left to right the first
one depends on all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from unspool.data.languages.known_language import check_count

SUM = re.compile(r"([0-9]+)\+([0-9]+)")


@dataclass(frozen=True)
class Addition:
    """Sums of two numbers, a character a digit."""

    digits: int = 2
    """The most of a summand; each number of digits is equally frequent."""
    right_to_left: bool = False
    """Whether the sum's last digit is written first."""

    def __post_init__(self) -> None:
        check_count("digits", self.digits)

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        a, b = (random.randrange(10 ** random.randint(1, self.digits)) for _ in range(2))
        return f"{a}+{b}", self._written(a + b)

    def truth(self, source: str) -> str:
        """The target."""
        match = SUM.fullmatch(source)
        if not match:
            raise ValueError(f"{source!r} is no sum of two numbers: write one as in 23+45")
        return self._written(int(match[1]) + int(match[2]))

    def _written(self, number: int) -> str:
        return str(number)[::-1] if self.right_to_left else str(number)
