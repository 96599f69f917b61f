from __future__ import annotations

from pathlib import Path

import pytest

from unspool.io import read_json_object


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"é": [1]}', encoding="utf-8")
    assert read_json_object(tmp_path / "a.json") == {"é": [1]}


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe", b"[" * 100_000, b"9" * 5000])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json is not valid JSON"):
        read_json_object(tmp_path / "broken.json")


def test_another_kind_of_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"list\.json must hold a JSON object, not a list"):
        read_json_object(tmp_path / "list.json")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json_object(tmp_path / "none.json")
