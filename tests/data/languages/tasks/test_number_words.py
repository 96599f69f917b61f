from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import NumberWords, number_to_words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (427, "four hundred twenty-seven"),
        (1000, "one thousand"),
        (40_016, "forty thousand sixteen"),
        (999_999, "nine hundred ninety-nine thousand nine hundred ninety-nine"),
    ],
)
def test_by_hand(number, words):
    assert number_to_words(number) == words


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 6))
def test_every_pair_is_right(seed, to_words, digits):
    task = NumberWords(digits, to_words)
    source, target = task.pair(Random(seed))
    words, number = (target, source) if to_words else (source, target)
    assert words == number_to_words(int(number))
    assert len(number) <= digits


def test_every_length_is_as_frequent():
    random = Random(3)
    lengths = Counter(len(NumberWords().pair(random)[1]) for _ in range(6000))
    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    assert all(abs(count - 1000) < 130 for count in lengths.values())


@pytest.mark.parametrize("digits", [0, 7, True])
def test_nonsense_is_refused(digits):
    with pytest.raises(ValueError, match="whole number, 1 to 6"):
        NumberWords(digits=digits)
