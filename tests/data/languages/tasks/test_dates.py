from __future__ import annotations

from datetime import date
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import FORMATS, Dates, format_date, ordinal


def test_by_hand():
    assert [format_date(date(1987, 3, 3), form) for form in FORMATS] == [
        "3 March 1987",
        "March 3, 1987",
        "the 3rd of March, 1987",
        "March 3rd, 1987",
        "3 Mar 1987",
        "Tuesday, 3 March 1987",
        "Tuesday, March 3, 1987",
        "3.3.1987",
    ]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, len(FORMATS)))
def test_every_pair_is_right(seed, formats):
    task = Dates(first_year=1995, last_year=2004, formats=formats)
    source, target = task.pair(Random(seed))
    day = date.fromisoformat(target)
    assert 1995 <= day.year <= 2004
    assert source in {format_date(day, form) for form in FORMATS[:formats]}


def test_all_formats_and_both_ends_are_drawn():
    random, task = Random(1), Dates(first_year=2000, last_year=2000)
    pairs = [task.pair(random) for _ in range(6000)]
    assert {target for _, target in pairs} >= {"2000-01-01", "2000-02-29", "2000-12-31"}
    assert any(source.startswith("the ") for source, _ in pairs)


def test_ordinals():
    said = [ordinal(number) for number in (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31)]
    assert " ".join(said) == "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 23rd 30th 31st"


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"first_year": 2000, "last_year": 1999}, "first_year is 2000, but last_year is 1999"),
        ({"first_year": 999}, "first_year is 999"),
        ({"formats": 0}, "formats is 0"),
        ({"formats": 99}, "formats is 99"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Dates(**settings)
