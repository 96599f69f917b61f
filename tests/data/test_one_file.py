from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from unspool.data.forms import Row
from unspool.data.meter import Advance, silent
from unspool.data.one_file import OneFile


@dataclass(frozen=True, kw_only=True)
class Names(OneFile):
    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        yield (path,)


def test_each_part_has_the_rows_of_its_file() -> None:
    data = Names(train="a", valid="b")
    assert list(data.train_rows(silent)) == [("a",)]
    valid = data.valid_rows(silent)
    assert valid is not None
    assert list(valid) == [("b",)]
    assert data.files() == {"train": "a", "valid": "b"}


def test_validation_needs_no_file() -> None:
    data = Names(train="a", valid_lines=1)
    assert (data.valid_rows(silent), data.files()) == (None, {"train": "a"})


def test_the_rows_must_be_said() -> None:
    with pytest.raises(TypeError, match="rows"):
        OneFile(train="a")  # type: ignore[abstract]
