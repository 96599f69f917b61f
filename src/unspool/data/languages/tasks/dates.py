"""Write a date, as people do in English, in the one way that sorts: "3 March 1987" → "1987-03-03".

    y = year-month-day, in digits (ISO 8601)

Names of months and weekdays have to be looked up, ordinals and zeros dropped or added, and the parts put in
another order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

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
    """Days of the Gregorian calendar in several ways of writing."""

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
        return written(day, FORMATS[random.randrange(self.formats)]), day.isoformat()

    def truth(self, source: str) -> str:
        """The target."""
        return found(source).isoformat()


def written(day: date, form: str) -> str:
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


def found(source: str) -> date:
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
    if source not in {written(day, form) for form in FORMATS}:
        raise ValueError(
            f"{source!r} is not how {day} is written here: {written(day, FORMATS[0])!r} is one way"
        )
    return day
