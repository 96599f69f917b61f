from __future__ import annotations

from collections.abc import Callable

from unspool.config import choose
from unspool.data import DATA
from unspool.data.examples import Texts
from unspool.data.line_formats import Lines
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_every_line_is_a_text(write: Write) -> None:
    data = Lines(train=write("a.txt", "a b\n\nc\n"), valid=write("v.txt", "d\n"))
    assert list(data.train_rows(no_progress)) == [("a b",), ("",), ("c",)]
    valid = data.valid_rows(no_progress)
    assert valid is not None
    assert list(valid) == [("d",)]
    assert data.form(()) == Texts()
    assert not data.holds_out_last


def test_a_whole_file_keeps_its_line_ends(write: Write) -> None:
    data = Lines(train=write("a.txt", "a b\n\nc"), document="file")
    assert "".join(text for (text,) in data.train_rows(no_progress)) == "a b\n\nc\n"
    assert data.form(()) == Texts(joined=True)
    assert data.holds_out_last


def test_a_recipe_can_say_it() -> None:
    said = {"kind": "lines", "train": "a.txt", "document": "file", "valid_share": 0.1}
    assert choose(DATA, said, "data") == Lines(train="a.txt", document="file", valid_share=0.1)
