from __future__ import annotations

from collections.abc import Callable

import pytest

from unspool.data.examples import Classes
from unspool.data.line_formats import LabelledLines
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_a_label_and_a_text_a_line(write: Write) -> None:
    data = LabelledLines(train=write("a.tsv", "good\tfine day\nbad \tawful\n\nworse\t\n"))
    rows = list(data.train_rows(no_progress))
    assert rows == [("good", "fine day"), ("bad ", "awful"), ("", ""), ("worse", "")]
    assert data.form(rows) == Classes(("bad", "good"))


def test_columns_are_chosen(write: Write) -> None:
    data = LabelledLines(train=write("a.tsv", "7\tfine day\tgood\n"), label=3, text=2)
    assert list(data.train_rows(no_progress)) == [("good", "fine day")]
    with pytest.raises(ValueError, match="label is 0"):
        LabelledLines(train="a", label=0)
