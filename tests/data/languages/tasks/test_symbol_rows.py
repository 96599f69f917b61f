from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from unspool.data.known_languages.tasks import Copying, Reversing, Sorting, format_symbols, parse_symbols


@pytest.mark.parametrize(
    ("task", "source", "target"),
    [
        (Copying(), "3 1 3 2", "3 1 3 2"),
        (Reversing(), "3 1 12", "12 1 3"),
        (Sorting(), "3 11 3 2", "2 3 3 11"),
    ],
)
def test_by_hand(task, source, target):
    assert task.truth(source) == target


RIGHT = {Copying: lambda row: row, Reversing: lambda row: [*reversed(row)], Sorting: sorted}


@pytest.mark.parametrize("kind", RIGHT)
@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_every_pair_is_right(kind, seed, symbols):
    task = kind(symbols=symbols, shortest=2, longest=12)
    source, target = task.pair(Random(seed))
    row = [int(word) for word in source.split()]
    assert [int(word) for word in target.split()] == RIGHT[kind](row)
    assert task.truth(source) == target
    assert 2 <= len(row) <= 12
    assert task.pair(Random(seed)) == (source, target)


def test_rows_are_uniform():
    random, task = Random(1), Copying(symbols=3, shortest=2, longest=4)
    rows = [parse_symbols(task.pair(random)[0]) for _ in range(3000)]
    lengths, symbols = Counter(map(len, rows)), Counter(symbol for row in rows for symbol in row)
    assert sorted(lengths) == [2, 3, 4]
    assert sorted(symbols) == [0, 1, 2]
    assert max(lengths.values()) < 1.15 * min(lengths.values())
    assert max(symbols.values()) < 1.1 * min(symbols.values())


def test_a_row_is_written_and_read():
    assert format_symbols([3, 1, 14]) == "3 1 14"
    assert parse_symbols("3 1 14") == [3, 1, 14]


@pytest.mark.parametrize("source", ["", "3  1", "a b", "3,1", " 3", "²", "-1"])
def test_other_text_is_refused(source):
    with pytest.raises(ValueError, match="no row of symbols"):
        parse_symbols(source)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"symbols": 0}, "symbols is 0"), ({"shortest": 5, "longest": 4}, "longest is 4, but shortest is 5")],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Copying(**settings)
