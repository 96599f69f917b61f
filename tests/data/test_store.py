from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.data import encoded_store
from unspool.data.batch import Ragged
from unspool.data.encoded_store import ColumnWriter, atomic_folder, map_column

ROWS = [[1, 2, 3], [], [4], [5, 6]]


def fill(writer: ColumnWriter, rows: list[list[int]]) -> Ragged:
    for row in rows:
        writer.put(row)
        writer.end()
    return writer.finish()


def listed(column: Ragged) -> list[list[int]]:
    return [column[row].tolist() for row in range(len(column))]


@given(st.lists(st.lists(st.integers(0, 99_999))))
def test_memory_gives_back_what_was_put(rows: list[list[int]]) -> None:
    assert listed(fill(ColumnWriter(100_000), rows)) == rows


@pytest.mark.parametrize("below", [65536, 65537])
@pytest.mark.parametrize("rows", [ROWS, [], [[]]])
def test_files_give_back_what_was_put(tmp_path: Path, below: int, rows: list[list[int]]) -> None:
    assert listed(fill(ColumnWriter(below, tmp_path / "x"), rows)) == rows
    column = map_column(tmp_path / "x")
    assert listed(column) == rows
    assert column.values.dtype == (np.uint16 if below == 65536 else np.uint32)


def test_a_large_column_goes_to_the_disk_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_store, "_BUFFERED", 3)
    writer = ColumnWriter(100, tmp_path / "x")
    for row in ROWS * 50:
        writer.put(row)
        writer.end()
        assert len(writer._values) < 3 + len(row)
    assert listed(writer.finish()) == ROWS * 50


def test_the_largest_number_fits() -> None:
    assert listed(fill(ColumnWriter(65536), [[65535]])) == [[65535]]
    with pytest.raises(OverflowError):
        fill(ColumnWriter(65536), [[65536]])


def test_a_row_may_come_in_parts() -> None:
    writer = ColumnWriter(10)
    for part in ([1], [2, 3]):
        writer.put(part)
    writer.end()
    assert listed(writer.finish()) == [[1, 2, 3]]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "here"
    with pytest.raises(FileNotFoundError), atomic_folder(place) as fresh:
        (fresh / "deep" / "file").write_text("half")
    assert list((tmp_path / "cache").iterdir()) == []
    with atomic_folder(place) as fresh:
        (fresh / "a").write_text("whole")
        assert not place.exists()
        number = fresh.stat().st_ino
    assert place.stat().st_ino == number  # renamed, which is done at once; a copy could be seen half done
    assert (place / "a").read_text() == "whole"
    assert list((tmp_path / "cache").iterdir()) == [place]


def test_the_quicker_process_stays(tmp_path: Path) -> None:
    place = tmp_path / "here"
    with atomic_folder(place) as slow:
        (slow / "a").write_text("slow")
        with atomic_folder(place) as quick:
            (quick / "a").write_text("quick")
    assert (place / "a").read_text() == "quick"
    assert list(tmp_path.iterdir()) == [place]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="here") as caught,
        atomic_folder(tmp_path / "here"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(PermissionError), atomic_folder(tmp_path / "here"):
        raise PermissionError("no")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, young = tmp_path / ".a.unspool-unfinished-1", tmp_path / ".b.unspool-unfinished-2"
    for left in (old, young):
        left.mkdir()
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (long_ago, long_ago))
    with atomic_folder(tmp_path / "here"):
        pass
    assert (old.exists(), young.exists()) == (False, True)
