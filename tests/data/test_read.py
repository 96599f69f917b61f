from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from unspool.data.rows import check_files, read_lines

Write = Callable[..., str]


def test_lines_come_without_their_ends(write: Write) -> None:
    path = write("a.txt", "\ufeffä\r\n\nb\rc \nlast")
    assert list(read_lines(path)) == ["ä", "", "b\rc ", "last"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8")), min_size=1))
def test_every_line_comes_back(write: Write, lines: list[str]) -> None:
    path = write("a.txt", "".join(line + "\n" for line in lines))
    assert list(read_lines(path)) == lines


def test_read_lines_reports_the_bytes_read(write: Write) -> None:
    told: list[int] = []
    path = write("a.txt", "ab\ncde")
    list(read_lines(path, advance=told.append))
    assert told == [3, 3]


def test_a_wrong_byte_is_named_by_line_and_place(write: Write) -> None:
    path = write("a.txt", b"good\nb\xc3\xa4d \xff!\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2 .*0xFF is byte 6 of the line, 11 of the file"):
        list(read_lines(path))


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(write: Write, end: str) -> None:
    assert list(read_lines(write("a.txt", "x\n" + "y" * 50 + end), limit=50)) == ["x", "y" * 50]
    with pytest.raises(ValueError, match=r"a\.txt, line 2 is longer than 50 bytes.*max_line_bytes"):
        list(read_lines(write("a.txt", "x\n" + "y" * 51 + end), limit=50))


def test_ten_million_bytes_without_an_end_are_no_line(write: Write) -> None:
    path = write("a.txt", b"x" * 10_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 1 is longer than 1,000,000 bytes"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_no_file_a_folder_and_an_empty_file_are_said(write: Write, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(FileNotFoundError, match="is a folder"):
        list(read_lines(tmp_path))
    with pytest.raises(ValueError, match=r"a\.txt is empty"):
        list(read_lines(write("a.txt", "")))


def test_a_file_that_is_missing_is_named_by_its_setting(write: Write) -> None:
    path = write("a", "x\n")
    check_files({"train": [path, path]})
    with pytest.raises(FileNotFoundError, match="train = 'none': there is no such file"):
        check_files({"train": [path, "none"]})
    with pytest.raises(FileNotFoundError, match="this is a folder: name its files"):
        check_files({"valid": [str(Path(path).parent)]})


def test_what_gzip_has_packed_is_read_whatever_its_name(write: Write) -> None:
    text = "\ufeffone\ntwö\r\n" * 500
    for name in ("a.txt.gz", "a.txt"):
        path = write(name, gzip.compress(text.encode()))
        told: list[int] = []
        assert list(read_lines(path, advance=told.append)) == list(read_lines(write("b.txt", text)))
        assert sum(told) == Path(path).stat().st_size
    # Two that were put together are one file, as `cat` makes it.
    assert list(read_lines(write("c.gz", gzip.compress(b"a\n") + gzip.compress(b"b\n")))) == ["a", "b"]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:30] + b"?" + data[31:]])
def test_a_damaged_gzip_file_is_named(write: Write, damage: Callable[[bytes], bytes]) -> None:
    packed = gzip.compress("".join(f"{at} lines\n" for at in range(300)).encode())
    with pytest.raises(ValueError, match=r"a\.gz is a damaged gzip file"):
        list(read_lines(write("a.gz", damage(packed))))


def test_a_line_of_a_packed_file_may_not_fill_the_memory(write: Write) -> None:
    path = write("a.gz", gzip.compress(b"x" * 50_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="line 1 is longer than 1,000,000 bytes"):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "program"),
    [(bz2.compress(b"a\n"), "bzip2"), (lzma.compress(b"a\n"), "xz"), (b"PK\x03\x04...", "zip")],
)
def test_what_others_have_packed_is_said(write: Write, content: bytes, program: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.txt is compressed by {program}: decompress it"):
        list(read_lines(write("a.txt", content)))


def test_an_empty_file_is_said_without_guessing_what_it_is_for(write: Write) -> None:
    for content in (b"", gzip.compress(b"")):
        with pytest.raises(ValueError, match=r"a\.txt is empty: give a file with text"):
            list(read_lines(write("a.txt", content)))
