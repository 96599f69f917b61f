from __future__ import annotations

from collections.abc import Callable

import pytest

from unspool.data.examples import Pairs
from unspool.data.line_formats import TSV
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_two_columns_are_chosen(write: Write) -> None:
    path = write("a.tsv", "Hi.\tHallo!\tCC-BY\n\nRun!\tLauf!\tCC-BY\n")
    assert list(TSV(train=path).train_rows(no_progress)) == [("Hi.", "Hallo!"), ("", ""), ("Run!", "Lauf!")]
    assert next(TSV(train=path, source=3, target=1).train_rows(no_progress)) == ("CC-BY", "Hi.")
    assert TSV(train=path).form(()) == Pairs()


def test_a_missing_column_is_reported(write: Write) -> None:
    path = write("a.tsv", "a\tb\njust this\n")
    with pytest.raises(
        ValueError, match=r"a\.tsv, line 2 has 1 tab-separated column, but column 2 is needed: 'just"
    ):
        list(TSV(train=path).train_rows(no_progress))
    with pytest.raises(ValueError, match="line 1 has 2 tab-separated columns, but column 7"):
        list(TSV(train=path, target=7).train_rows(no_progress))


def test_columns_are_counted_from_1() -> None:
    with pytest.raises(ValueError, match="source is 0"):
        TSV(train="a", source=0)
