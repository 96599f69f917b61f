from __future__ import annotations

from random import Random

from hypothesis import given, settings, strategies as st

from unspool.data.languages.tasks import Reversing


def test_by_hand():
    assert Reversing().truth("3 1 12") == "12 1 3"


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_every_pair_is_right(seed, symbols):
    task = Reversing(symbols=symbols, shortest=2, longest=12)
    source, target = task.pair(Random(seed))
    assert target.split() == source.split()[::-1]
    assert task.truth(source) == target
    assert 2 <= len(source.split()) <= 12
    assert task.pair(Random(seed)) == (source, target)
