from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import Copying, Reversing, Sorting

RIGHT = {Copying: lambda row: row, Reversing: lambda row: [*reversed(row)], Sorting: sorted}


@pytest.mark.parametrize("kind", RIGHT)
@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_every_pair_is_right(kind, seed, symbols):
    task = kind(symbols=symbols, shortest=2, longest=12)
    source, target = task.pair(Random(seed))
    row = [int(word) for word in source.split()]
    assert [int(word) for word in target.split()] == RIGHT[kind](row)
    assert 2 <= len(row) <= 12
    assert task.pair(Random(seed)) == (source, target)


def test_rows_are_uniform():
    random, task = Random(1), Copying(symbols=3, shortest=2, longest=4)
    rows = [list(map(int, task.pair(random)[0].split())) for _ in range(3000)]
    lengths, symbols = Counter(map(len, rows)), Counter(symbol for row in rows for symbol in row)
    assert sorted(lengths) == [2, 3, 4]
    assert sorted(symbols) == [0, 1, 2]
    assert max(lengths.values()) < 1.15 * min(lengths.values())
    assert max(symbols.values()) < 1.1 * min(symbols.values())


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"symbols": 0}, "symbols is 0"), ({"shortest": 5, "longest": 4}, "longest is 4, but shortest is 5")],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Copying(**settings)
