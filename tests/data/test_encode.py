from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.data import encoded_store
from unspool.data.batch import Ragged
from unspool.data.encoded_store import (
    DamagedCacheError,
    EncodedRows,
    NonEmptyRows,
    chunk_rows,
    encode_rows,
    read_encoded_rows,
)
from unspool.data.examples import Pairs, Texts
from unspool.data.rows import END_OF_TEXT
from unspool.tokenization import train_words

CODEC = replace(train_words(["a b c"]), add_bos=True)  # a = 4, b = 5, c = 6
ROWS = [("a",), ("b b",), (" ",), ("c",)]
HELD = np.array([False, True, False])


def listed(columns: tuple[Ragged, ...]) -> list[list[list[int]]]:
    return [[column[row].tolist() for row in range(len(column))] for column in columns]


def check(found: EncodedRows) -> None:
    assert listed(found.train) == [[[1, 4, 2], [1, 6, 2]]]
    assert listed(found.valid) == [[[1, 5, 5, 2]]]
    assert found.empty == 1


def test_held_out_rows_go_to_the_validation_by_hand() -> None:
    check(encode_rows(ROWS, None, HELD, Texts(), CODEC))


def test_a_folder_holds_the_same(tmp_path: Path) -> None:
    check(encode_rows(ROWS, None, HELD, Texts(), CODEC, tmp_path / "x"))
    check(read_encoded_rows(tmp_path / "x", Texts()))


@pytest.mark.parametrize("facts", ["", "[]", "{}", '{"empty": "x"}', '{"empty": 1', None])
def test_facts_that_are_not_what_was_written_are_said(tmp_path: Path, facts: str | None) -> None:
    encode_rows(ROWS, None, HELD, Texts(), CODEC, tmp_path / "x")
    path = tmp_path / "x" / "facts.json"
    path.unlink() if facts is None else path.write_text(facts)
    with pytest.raises(DamagedCacheError, match=r"facts\.json is missing or damaged"):
        read_encoded_rows(tmp_path / "x", Texts())


def test_a_flipped_byte_of_any_column_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    encode_rows([("a b",), ("c",), ("b c",)], None, np.arange(3) == 2, Texts(), CODEC, folder)
    columns = sorted(it for it in folder.iterdir() if it.suffix != ".json")
    assert len(columns) == 4
    for path in columns:
        kept = path.read_bytes()
        path.write_bytes(bytes([*kept[:-2], kept[-2] ^ 1, kept[-1]]))
        with pytest.raises(DamagedCacheError, match=rf"{path.name} was changed: its checksum"):
            read_encoded_rows(folder, Texts())
        path.write_bytes(kept)
    assert listed(read_encoded_rows(folder, Texts()).train) == [[[1, 4, 5, 2], [1, 6, 2]]]


def test_validation_may_have_its_own_rows() -> None:
    found = encode_rows([("a", "b")], [("c", ""), ("b", "c")], np.zeros(1, dtype=bool), Pairs(), CODEC)
    assert listed(found.train) == [[[1, 4, 2]], [[1, 5, 2]]]
    assert listed(found.valid) == [[[1, 5, 2]], [[1, 6, 2]]]
    assert found.empty == 1


@pytest.mark.parametrize("folder", [None, "x"])
def test_joined_rows_are_one_text(tmp_path: Path, folder: str | None) -> None:
    place = None if folder is None else tmp_path / folder
    found = encode_rows(
        [("a",), ("",), ("b",), ("c",)], None, np.arange(4) == 3, Texts(joined=True), CODEC, place
    )
    assert (listed(found.train), listed(found.valid)) == ([[[1, 4, 5, 2]]], [[[1, 6, 2]]])


@pytest.mark.parametrize("folder", [None, "x"])
def test_a_text_ends_between_joined_rows(tmp_path: Path, folder: str | None) -> None:
    place = None if folder is None else tmp_path / folder
    rows = [("a",), ("b",), END_OF_TEXT, ("c",), ("a",)]
    found = encode_rows(rows, None, np.arange(4) >= 3, Texts(joined=True), CODEC, place)
    assert listed(found.train) == [[[1, 4, 5, 2], [1, 6, 2]]]
    assert listed(found.valid) == [[[1, 4, 2]]]
    apart = encode_rows(
        rows[:2], [("c",), END_OF_TEXT, ("b",)], np.zeros(2, dtype=bool), Texts(joined=True), CODEC, None
    )
    assert listed(apart.valid) == [[[1, 6, 2], [1, 5, 2]]]
    assert NonEmptyRows(rows, Texts(joined=True)).count() == 4


def test_nothing_held_out_is_nothing_to_validate_on() -> None:
    for form in (Texts(), Texts(joined=True)):
        assert listed(encode_rows([("a",)], None, np.zeros(1, dtype=bool), form, CODEC).valid) == [[]]


def test_rows_with_an_empty_column_are_counted() -> None:
    filled = NonEmptyRows([("a", "b"), ("", "b"), ("a", "\t"), ("c", "c")], Pairs())
    assert (list(filled), filled.empty) == ([("a", "b"), ("c", "c")], 2)


@given(st.lists(st.tuples(st.text(max_size=8)), max_size=30))
def test_handfuls_are_all_rows_in_order(rows: list[tuple[str, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded_store, "_ROWS", 4)
        patch.setattr(encoded_store, "_CHARACTERS", 10)
        found = list(chunk_rows(rows))
    assert [row for some in found for row in some] == rows
    for some in found:
        assert 1 <= len(some) <= 4
        assert sum(len(row[0]) for row in some[:-1]) < 10


def test_a_failure_leaves_no_folder(tmp_path: Path) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield ("a",)
        raise ValueError("line 2 is bad")

    with pytest.raises(ValueError, match="line 2 is bad"):
        encode_rows(broken(), None, np.zeros(9, dtype=bool), Texts(), CODEC, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_sources_have_room(tmp_path: Path) -> None:
    many = train_words([" ".join(f"w{at}" for at in range(70_000))])  # more than two bytes hold
    text = replace(CODEC, source=many)
    rows = [("w9 w69999", "a")]
    found = encode_rows(rows, None, np.zeros(1, dtype=bool), Pairs(), text, tmp_path / "x")
    assert many.decode(found.train[0][0].tolist()) == "w9 w69999"
    assert many.decode(read_encoded_rows(tmp_path / "x", Pairs()).train[0][0].tolist()) == "w9 w69999"
