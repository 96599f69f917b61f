from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from unspool.config import build, to_dict
from unspool.data.line_formats import TextFiles
from unspool.data.rows import END_OF_TEXT, OnProgress, Row, no_progress


@dataclass(frozen=True, kw_only=True)
class Names(TextFiles):
    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        yield (path,)


def test_each_part_has_the_rows_of_its_file() -> None:
    data = Names(train="a", valid="b")
    assert list(data.train_rows(no_progress)) == [("a",)]
    valid = data.valid_rows(no_progress)
    assert valid is not None
    assert list(valid) == [("b",)]
    assert data.files() == {"train": ("a",), "valid": ("b",)}


def test_validation_needs_no_file() -> None:
    data = Names(train="a", valid_lines=1)
    assert (data.valid_rows(no_progress), data.files()) == (None, {"train": ("a",)})


def test_several_files_are_read_one_after_the_other() -> None:
    data = build(Names, {"train": ["a", "b"], "valid": ["c", "d"]}, "data")
    assert list(data.train_rows(no_progress)) == [("a",), ("b",)]
    assert list(data.valid_rows(no_progress) or ()) == [("c",), ("d",)]
    assert data.files() == {"train": ("a", "b"), "valid": ("c", "d")}
    assert build(Names, to_dict(data), "data") == data


def test_a_list_must_name_a_file() -> None:
    with pytest.raises(ValueError, match="train is an empty list"):
        Names(train=())
    with pytest.raises(ValueError, match="valid is an empty list"):
        Names(train="a", valid=())


def test_texts_end_with_their_files_where_rows_are_joined() -> None:
    class Joined(Names):
        joined = True

    assert list(Joined(train=("a", "b", "c")).train_rows(no_progress)) == [
        ("a",),
        END_OF_TEXT,
        ("b",),
        END_OF_TEXT,
        ("c",),
    ]


def test_the_rows_must_be_said() -> None:
    with pytest.raises(TypeError, match="rows"):
        TextFiles(train="a")  # type: ignore[abstract]
