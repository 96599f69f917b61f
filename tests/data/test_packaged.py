from __future__ import annotations

import gzip
import sys

import pytest
from hypothesis import given, settings, strategies as st

from unspool.config import build, to_dict
from unspool.data import Bucketed, Data, prepare
from unspool.data.packaged import Packaged
from unspool.data.reading import no_progress
from unspool.tokenization import Words

VERSES = '﻿id,text\n1,"In the beginning{a {nested} note}, ""light"""\n2,and  there was\n\n3,{all note}\n'


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A package whose code must not run, on the path."""
    package = tmp_path / "tiny_shelf"
    (package / "texts").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the package was run')\n")
    (package / "texts/verses.csv.gz").write_bytes(gzip.compress(VERSES.encode()))
    (package / "texts/lines.txt").write_bytes("Ein Satz.\r\nZwei Sätze. \n".encode())
    monkeypatch.syspath_prepend(tmp_path)
    return package


def rows(**settings):
    data: Data = Packaged(package="tiny_shelf", **settings)
    return [text for (text,) in data.train_rows(no_progress)]


def test_lines_of_a_file(shelf):
    assert rows(file="texts/lines.txt") == ["Ein Satz.", "Zwei Sätze."]
    assert "tiny_shelf" not in sys.modules


def test_a_column_of_a_packed_table(shelf):
    found = rows(file="texts/verses.csv.gz", column=2, header=True, brackets="{}")
    assert found == ['In the beginning, "light"', "and  there was", "", ""]
    assert rows(file="texts/verses.csv.gz", column=1) == ["id", "1", "2", "", "3"]


def test_notes_stay_where_no_brackets_are_named(shelf):
    assert rows(file="texts/verses.csv.gz", column=2)[4] == "{all note}"


@settings(deadline=None, max_examples=50)
@given(st.text("ab[]", max_size=12))
def test_nothing_bracketed_is_left(text):
    tidy = Packaged(package="p", file="f", brackets="[]")._tidy
    depth = 0
    for letter in tidy(text):
        depth += letter == "["
        assert not (letter == "]" and depth)


def test_it_is_prepared_like_any_data(shelf, tmp_path):
    data = build(Packaged, {"package": "tiny_shelf", "file": "texts/lines.txt", "valid_lines": 1}, "data")
    assert build(Packaged, to_dict(data), "data") == data
    made = prepare(data, Words(), Bucketed(), cache=tmp_path / "cache")
    assert (made.facts["train_examples"], made.facts["valid_examples"]) == (1, 1)
    assert data.valid_rows(no_progress) is None


def test_all_bytes_are_counted(shelf):
    for said in ({"file": "texts/verses.csv.gz", "column": 2}, {"file": "texts/lines.txt"}):
        read = []
        list(Packaged(package="tiny_shelf", **said).train_rows(read.append))
        assert sum(read) == (shelf / said["file"]).stat().st_size


def test_a_package_that_is_not_there_says_how_to_get_it():
    with pytest.raises(FileNotFoundError, match=r"'no_such_shelf' is not installed: .*pip install --no-deps"):
        Packaged(package="no_such_shelf", file="a.txt").files()


def test_a_module_without_a_folder_is_no_package(shelf):
    (shelf.parent / "one_module.py").write_text("")
    with pytest.raises(FileNotFoundError, match="not installed"):
        Packaged(package="one_module", file="a.txt").files()


def test_a_file_that_is_not_there_is_named(shelf):
    with pytest.raises(FileNotFoundError, match=r"'tiny_shelf' has no file 'texts/b\.txt'"):
        rows(file="texts/b.txt")


@pytest.mark.parametrize(
    ("content", "settings", "match"),
    [
        (b"", {}, "is empty"),
        (b"ok\n\xff\n", {}, r"line 2 is not valid UTF-8"),
        (b"a" * 50, {"max_line_bytes": 40}, r"line 1 is longer than 40 bytes"),
        (b"a,b\nc\n", {"column": 2}, r"line 2 has 1 columns, but column 2"),
        (b'"a"b,c\n', {"column": 1}, r"line 1 is not CSV"),
        (b'"a,c\n', {"column": 1}, r"line 1 is not CSV"),
    ],
)
def test_bad_data_is_named(shelf, content, settings, match):
    (shelf / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=match):
        rows(file="bad", **settings)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"package": "a.b"}, "without dots"),
        ({"package": ""}, "without dots"),
        ({"file": "/etc/passwd"}, "inside of the package"),
        ({"file": "../x"}, "inside of the package"),
        ({"file": "a\\..\\x"}, "inside of the package"),
        ({"file": ""}, "inside of the package"),
        ({"column": 0}, "counted from 1"),
        ({"brackets": "("}, "two different characters"),
        ({"brackets": "||"}, "two different characters"),
        ({"valid_share": 2.0}, "valid_share is 2"),
    ],
)
def test_nonsense_is_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Packaged(**{"package": "p", "file": "f"} | settings)
