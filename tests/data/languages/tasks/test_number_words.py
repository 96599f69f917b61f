from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import NumberWords, number_to_words, words_to_number


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
    assert NumberWords().truth(words) == str(number)
    assert NumberWords(to_words=True).truth(str(number)) == words


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 999_999))
def test_words_come_back_as_the_number(number):
    assert words_to_number(number_to_words(number)) == number


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 6))
def test_every_pair_is_right(seed, to_words, digits):
    task = NumberWords(digits, to_words)
    source, target = task.pair(Random(seed))
    assert task.truth(source) == target
    assert len(source if to_words else target) <= digits


def test_every_length_is_as_frequent():
    random = Random(3)
    lengths = Counter(len(NumberWords().pair(random)[1]) for _ in range(6000))
    assert sorted(lengths) == [1, 2, 3, 4, 5, 6]
    assert all(abs(count - 1000) < 130 for count in lengths.values())


@pytest.mark.parametrize(
    "words",
    ["", "four hundred and two", "two twenty", "hundred", "thousand thousand", "Two", "twenty two", "dog"],
)
def test_other_words_are_refused(words):
    with pytest.raises(ValueError, match="spells no number"):
        NumberWords().truth(words)


@pytest.mark.parametrize("digits", ["", "1000000", "1,000", "-1", "²"])
def test_other_digits_are_refused(digits):
    with pytest.raises(ValueError, match="no number below a million"):
        NumberWords(to_words=True).truth(digits)


@pytest.mark.parametrize("digits", [0, 7, True])
def test_nonsense_is_refused(digits):
    with pytest.raises(ValueError, match="1 to 6 digits"):
        NumberWords(digits=digits)
