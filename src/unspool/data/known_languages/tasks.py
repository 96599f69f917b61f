"""Tiny tasks with one right answer each, as translations from a source to a target."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from unspool.data.known_languages.known_language import check_count

SUM = re.compile(r"([0-9]+)\+([0-9]+)")


@dataclass(frozen=True)
class Addition:
    """Sums of two numbers, a character a digit.

    Add two numbers, in digits: "23+45" → "68", or from right to left "86".

        y = a + b,   a and b of 1 … `digits` digits

    From right to left every digit of the sum follows from two digits and a carry; from left to right the
    first one depends on all of them.
    """

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
"""Dots mean the day comes first; slashes, which mean both, are left out."""

DAY_YEAR = re.compile(r"\b(?P<day>\d{1,2})(?:st|nd|rd|th)?\b.*\b(?P<year>\d{4})$")
DOTTED = re.compile(r"(?P<day>\d{1,2})\.(?P<number>\d{1,2})\.(?P<year>\d{4})")


@dataclass(frozen=True)
class Dates:
    """Days of the Gregorian calendar in several ways of writing.

    Write a date, as people do in English, in the one way that sorts: "3 March 1987" → "1987-03-03".

        y = year-month-day, in digits (ISO 8601)

    Names of months and weekdays have to be looked up, ordinals and zeros dropped or added, and the parts put
    in another order.
    """

    first_year: int = 1900
    """The first year whose days are drawn."""
    last_year: int = 2099
    """The last one."""
    formats: int = len(FORMATS)
    """How many of the ways of writing are used, the plainest first."""

    def __post_init__(self) -> None:
        if not 1000 <= self.first_year <= self.last_year <= 9998:
            raise ValueError(
                f"years run from {self.first_year} to {self.last_year}; they must lie between 1000 and 9998, "
                "the first one first"
            )
        if isinstance(self.formats, bool) or self.formats not in range(1, len(FORMATS) + 1):
            raise ValueError(f"formats is {self.formats!r}; there are 1 to {len(FORMATS)}")

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        first = date(self.first_year, 1, 1)
        days = (date(self.last_year + 1, 1, 1) - first).days
        day = first + timedelta(days=random.randrange(days))
        return format_date(day, FORMATS[random.randrange(self.formats)]), day.isoformat()

    def truth(self, source: str) -> str:
        """The target."""
        return parse_date(source).isoformat()


def format_date(day: date, form: str) -> str:
    """The day in one of the FORMATS."""
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


def parse_date(source: str) -> date:
    """The day that a text writes."""
    if match := DOTTED.fullmatch(source):
        parts = match["year"], match["number"], match["day"]
    else:
        months = [at for at, name in enumerate(MONTHS, 1) if re.search(rf"\b({name}|{name[:3]})\b", source)]
        match = DAY_YEAR.search(source)
        if not match or len(months) != 1:
            raise ValueError(f"{source!r} is no date that is known here: write one as in 3 March 1987")
        parts = match["year"], str(months[0]), match["day"]
    try:
        day = date(*map(int, parts))
    except ValueError as error:
        raise ValueError(f"{source!r} is no day of the calendar: {error}") from None
    # "Monday" for a Tuesday, "2th" and the like are noticed by writing the day in every way that is known.
    if source not in {format_date(day, form) for form in FORMATS}:
        raise ValueError(
            f"{source!r} is not how {day} is written here: {format_date(day, FORMATS[0])!r} is one way"
        )
    return day


ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL = {word: number for number, word in enumerate(ONES)} | {
    word: 10 * number for number, word in enumerate(TENS, start=2)
}


@dataclass(frozen=True)
class NumberWords:
    """Numbers below a million.

    Between digits and English words for a number: "427" ↔ "four hundred twenty-seven".

        n = 1000·thousands + rest,   each part = 100·hundreds + 10·tens + ones

    American style, without "and". How many digits a number has is drawn first, so that short ones are as
    frequent as long ones.
    """

    digits: int = 6
    """The most of a number, 1 to 6."""
    to_words: bool = False
    """Whether digits are the source, and words the target."""

    def __post_init__(self) -> None:
        if isinstance(self.digits, bool) or self.digits not in range(1, 7):
            raise ValueError(f"digits is {self.digits!r}; numbers have 1 to 6 digits")

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        digits = random.randint(1, self.digits)
        number = random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
        both = number_to_words(number), str(number)
        return both[::-1] if self.to_words else both

    def truth(self, source: str) -> str:
        """The target."""
        if not self.to_words:
            return str(words_to_number(source))
        if not (source.isascii() and source.isdigit() and len(source) <= 6):
            raise ValueError(f"{source!r} is no number below a million: write its digits alone, as in 427")
        return number_to_words(int(source))


def number_to_words(number: int) -> str:
    """A number from 0 to 999,999 in words."""
    if number < 20:
        return ONES[number]
    for unit, name in ((1000, "thousand"), (100, "hundred")):
        if number >= unit:
            head, rest = divmod(number, unit)
            return f"{number_to_words(head)} {name}" + (f" {number_to_words(rest)}" if rest else "")
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")


def words_to_number(words: str) -> int:
    """The number that words spell."""
    thousands = part = 0
    for word in words.replace("-", " ").split():
        if word == "thousand":
            thousands, part = 1000 * part, 0
        elif word == "hundred":
            part *= 100
        else:
            part += SMALL.get(word, 0)
    # Words in a wrong order add up, too: only what is spelled as `spelled` does it is a number.
    number = thousands + part
    if not 0 <= number < 1_000_000 or number_to_words(number) != words:
        raise ValueError(
            f"{words!r} spells no number below a million: write it as in four hundred twenty-seven"
        )
    return number


# Rows of symbols, drawn at random, to be copied, reversed or sorted.
#
# n ~ uniform(shortest … longest),   x₁ … xₙ ~ uniform(0 … symbols − 1), written "3 1 4"
#
# copy       y = x₁ x₂ … xₙ
# reverse    y = xₙ … x₂ x₁
# sort       y₁ ≤ y₂ ≤ … ≤ yₙ, a permutation of x₁ … xₙ


@dataclass(frozen=True)
class SymbolTask(ABC):
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
        """Return the target of a row."""

    def pair(self, random: Random) -> tuple[str, str]:
        """A source and its target."""
        length = random.randint(self.shortest, self.longest)
        row = [random.randrange(self.symbols) for _ in range(length)]
        return format_symbols(row), format_symbols(self.answer(row))

    def truth(self, source: str) -> str:
        """The target."""
        return format_symbols(self.answer(parse_symbols(source)))


@dataclass(frozen=True)
class Copying(SymbolTask):
    """Copy a row of symbols."""

    def answer(self, row: list[int]) -> list[int]:
        """The row itself."""
        return row


@dataclass(frozen=True)
class Reversing(SymbolTask):
    """Say a row of symbols backwards."""

    def answer(self, row: list[int]) -> list[int]:
        """The row, its last symbol first."""
        return row[::-1]


@dataclass(frozen=True)
class Sorting(SymbolTask):
    """Sort a row of symbols, the smallest first."""

    def answer(self, row: list[int]) -> list[int]:
        """The row in order."""
        return sorted(row)


def format_symbols(row: list[int]) -> str:
    """The row as text."""
    return " ".join(map(str, row))


def parse_symbols(source: str) -> list[int]:
    """The row that a text writes."""
    words = source.split(" ")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(
            f"{source!r} is no row of symbols: write whole numbers with single spaces, as in 3 1 4"
        )
    return [int(word) for word in words]


TASKS: dict[str, type[Any]] = {
    "addition": Addition,
    "copy": Copying,
    "dates": Dates,
    "number_words": NumberWords,
    "reverse": Reversing,
    "sort": Sorting,
}
