"""Tiny tasks with one right answer each, as translations from a source to a target."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from unspool.arguments import Checked, integer


@dataclass(frozen=True)
class Addition(Checked):
    """Add two numbers, in digits: "23+45" → "68", or from right to left "86".

        y = a + b,   a and b of 1 … `digits` digits

    From right to left, every digit of the sum depends on two digits and a carry; from left to right, the
    first one depends on all of them.
    """

    digits: int = integer(2, at_least=1)
    """Maximum digits of a summand; each number of digits is equally frequent."""
    right_to_left: bool = False
    """Whether the sum's last digit is written first."""

    def pair(self, random: Random) -> tuple[str, str]:
        a, b = (random.randrange(10 ** random.randint(1, self.digits)) for _ in range(2))
        return f"{a}+{b}", str(a + b)[::-1] if self.right_to_left else str(a + b)


MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

FORMATS = (
    "{day} {month} {year}",
    "{month} {day}, {year}",
    "the {ordinal} of {month}, {year}",
    "{month} {ordinal}, {year}",
    "{day} {short} {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday}, {month} {day}, {year}",
    "{day}.{number}.{year}",
)
"""With dots, the day comes first; slashes are ambiguous and left out."""


@dataclass(frozen=True)
class Dates(Checked):
    """Convert an English date to ISO 8601: "3 March 1987" → "1987-03-03".

        y = year-month-day, in digits

    Names of months and weekdays have to be looked up, ordinals and zeros dropped or added, and the parts put
    in another order.
    """

    first_year: int = integer(1900, at_least=1000, at_most=9998)
    """The first year whose days are drawn."""
    last_year: int = integer(2099, at_least=1000, at_most=9998)
    """The last one."""
    formats: int = integer(len(FORMATS), at_least=1, at_most=len(FORMATS))
    """Number of formats that are used, the plainest first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.first_year > self.last_year:
            raise ValueError(f"first_year is {self.first_year}, but last_year is {self.last_year}")

    def pair(self, random: Random) -> tuple[str, str]:
        first = date(self.first_year, 1, 1)
        days = (date(self.last_year + 1, 1, 1) - first).days
        day = first + timedelta(days=random.randrange(days))
        return format_date(day, FORMATS[random.randrange(self.formats)]), day.isoformat()


def format_date(day: date, form: str) -> str:
    month = MONTHS[day.month - 1]
    return form.format(
        day=day.day,
        ordinal=ordinal(day.day),
        month=month,
        short=month[:3],
        number=day.month,
        year=day.year,
        weekday=WEEKDAYS[day.weekday()],
    )


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th … 11th, 12th, 13th … 21st."""
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


@dataclass(frozen=True)
class SymbolTask(Checked):
    """Rows of random symbols, whole numbers with spaces between them: "3 1 4".

    n ~ uniform(shortest … longest),   x₁ … xₙ ~ uniform(0 … symbols − 1)
    """

    symbols: int = integer(10, at_least=1)
    """Number of different symbols."""
    shortest: int = integer(1, at_least=1)
    """Minimum length of a row."""
    longest: int = integer(10, at_least=1)
    """Maximum length of a row; each length is equally frequent."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < self.shortest:
            raise ValueError(f"longest is {self.longest}, but shortest is {self.shortest}")

    def answer(self, row: list[int]) -> list[int]:
        """Return the target of a row: by default the row itself."""
        return row

    def pair(self, random: Random) -> tuple[str, str]:
        length = random.randint(self.shortest, self.longest)
        row = [random.randrange(self.symbols) for _ in range(length)]
        return " ".join(map(str, row)), " ".join(map(str, self.answer(row)))


class Copying(SymbolTask):
    """Copy a row of symbols: y = x₁ x₂ … xₙ."""


class Reversing(SymbolTask):
    """Reverse a row of symbols: y = xₙ … x₂ x₁."""

    def answer(self, row: list[int]) -> list[int]:
        return row[::-1]


class Sorting(SymbolTask):
    """Sort a row of symbols, the smallest first: y₁ ≤ y₂ ≤ … ≤ yₙ, a permutation of x₁ … xₙ."""

    def answer(self, row: list[int]) -> list[int]:
        return sorted(row)


TASKS: dict[str, type[Any]] = {
    "addition": Addition,
    "copy": Copying,
    "dates": Dates,
    "reverse": Reversing,
    "sort": Sorting,
}
