from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import Addition


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans())
def test_every_pair_is_right(seed, digits, right_to_left):
    task = Addition(digits, right_to_left)
    source, target = task.pair(Random(seed))
    a, b = source.split("+")
    assert int(target[::-1] if right_to_left else target) == int(a) + int(b)
    assert max(len(a), len(b)) <= digits


def test_both_directions_have_the_same_sources():
    left, right = (Addition(3, right_to_left).pair(Random(5)) for right_to_left in (False, True))
    assert left[0] == right[0]
    assert left[1] == right[1][::-1]


def test_short_and_long_numbers_are_drawn():
    random = Random(2)
    lengths = Counter(len(Addition(3).pair(random)[0].split("+")[0]) for _ in range(3000))
    # One digit: 1/3, and 1/10 and 1/100 of the longer draws.
    assert abs(lengths[1] / 3000 - (1 + 0.1 + 0.01) / 3) < 0.04


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="digits is 0"):
        Addition(digits=0)
