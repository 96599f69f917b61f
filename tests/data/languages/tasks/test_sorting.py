from __future__ import annotations

from random import Random

from hypothesis import given, settings, strategies as st

from unspool.data.languages.tasks import Sorting


def test_by_hand():
    assert Sorting().truth("3 11 3 2") == "2 3 3 11"


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_every_pair_is_right(seed, symbols):
    task = Sorting(symbols=symbols, shortest=2, longest=12)
    source, target = task.pair(Random(seed))
    assert [int(word) for word in target.split()] == sorted(map(int, source.split()))
    assert task.truth(source) == target
    assert 2 <= len(source.split()) <= 12
    assert task.pair(Random(seed)) == (source, target)
