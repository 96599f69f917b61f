from __future__ import annotations

from collections.abc import Callable

import pytest

from unspool.data.examples import Tags
from unspool.data.line_formats import TaggedLines
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_words_and_tags_a_line(write: Write) -> None:
    data = TaggedLines(train=write("a.tsv", "dogs bark\tN V\n\nbark !\tV P\n"))
    rows = list(data.train_rows(no_progress))
    assert rows == [("dogs bark", "N V"), ("", ""), ("bark !", "V P")]
    assert data.form(rows) == Tags(("N", "P", "V"))


def test_unequal_numbers_of_words_and_tags_are_said(write: Write) -> None:
    data = TaggedLines(train=write("a.tsv", "a b\tN V\ndogs bark\tN\n"))
    with pytest.raises(ValueError, match=r"a\.tsv, line 2 has 2 words but 1 tags"):
        list(data.train_rows(no_progress))


def test_columns_are_counted_from_1() -> None:
    with pytest.raises(ValueError, match="tags is 0"):
        TaggedLines(train="a", tags=0)
