from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from unspool.data.languages.tasks.symbols import Symbols, read, written


def test_rows_are_uniform():
    random, task = Random(1), Symbols(symbols=3, shortest=2, longest=4)
    rows = [task.draw(random) for _ in range(3000)]
    lengths, symbols = Counter(map(len, rows)), Counter(symbol for row in rows for symbol in row)
    assert sorted(lengths) == [2, 3, 4]
    assert sorted(symbols) == [0, 1, 2]
    assert max(lengths.values()) < 1.15 * min(lengths.values())
    assert max(symbols.values()) < 1.1 * min(symbols.values())


def test_a_row_is_written_and_read():
    assert written([3, 1, 14]) == "3 1 14"
    assert read("3 1 14") == [3, 1, 14]


@pytest.mark.parametrize("source", ["", "3  1", "a b", "3,1", " 3", "²", "-1"])
def test_other_text_is_refused(source):
    with pytest.raises(ValueError, match="no row of symbols"):
        read(source)


@pytest.mark.parametrize(
    ("settings", "match"),
    [({"symbols": 0}, "symbols is 0"), ({"shortest": 5, "longest": 4}, "longest is 4, but shortest is 5")],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Symbols(**settings)
