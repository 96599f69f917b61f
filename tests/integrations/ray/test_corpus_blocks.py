import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from unspool.integrations.ray.corpus_blocks import block_lines, corpus_blocks, corpus_files


def test_blocks_skip_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n\n{"x": 2}\n{"x": 3}', encoding="utf-8")
    first, second = corpus_blocks([path], 2)
    assert (first.number, first.begin, first.end, first.line, first.rows) == (0, 0, 19, 1, 2)
    assert (second.number, second.begin, second.end, second.line, second.rows) == (1, 19, 27, 4, 1)
    assert block_lines(first, ()) == [(f"{path}:1", '{"x": 1}'), (f"{path}:3", '{"x": 2}')]
    assert block_lines(second, ()) == [(f"{path}:4", '{"x": 3}')]


@settings(max_examples=60)
@given(st.text(st.sampled_from("aé \n\r\u2028"), max_size=30), st.booleans(), st.integers(1, 4))
def test_blocks_contain_every_line_once_for_any_line_break(tmp_path_factory, text, mark, rows):
    from unspool.data.records import read_utf8, split_lines

    path = tmp_path_factory.mktemp("corpus") / "a.jsonl"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.encode())
    lines = [(f"{path}:{n}", it) for n, it in enumerate(split_lines(read_utf8(path)), 1) if it.strip()]
    blocks = list(corpus_blocks([path], rows))
    assert [it for block in blocks for it in block_lines(block, ())] == lines
    assert sum(block.rows for block in blocks) == len(lines)


def test_parquet_rows_are_read_as_json_lines(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"prompt": ["a", "b", "c"], "seed": [None, 7, None], "other": [1, 2, 3]})
    pq.write_table(table, path, row_group_size=2)
    first, second, third = corpus_blocks([path], 1)
    assert (first.group, second.group, third.group) == (0, 0, 1)
    assert block_lines(second, ("prompt", "seed")) == [(f"{path}: row 2", '{"prompt": "b", "seed": 7}')]
    assert json.loads(block_lines(third, ("prompt",))[0][1]) == {"prompt": "c"}


def test_corpus_files_of_a_folder_are_sorted(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "notes.md", ".hidden.jsonl", "c.parquet"):
        (tmp_path / name).touch()
    assert [it.name for it in corpus_files(tmp_path)] == ["a.jsonl", "b.jsonl", "c.parquet"]


def test_unreadable_corpora_are_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"the folder has no file with suffix \.jsonl"):
        corpus_files(tmp_path)
    with pytest.raises(FileNotFoundError):
        corpus_files(tmp_path / "a.jsonl")
    for name, content in {"a.txt": b"", "a.jsonl": b"\xff\n", "a.parquet": b"no"}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.txt: expected a file with suffix"):
        corpus_files(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.jsonl: not UTF-8"):
        list(corpus_blocks([tmp_path / "a.jsonl"], 2))
    with pytest.raises(ValueError, match=r"a\.parquet: not Parquet"):
        list(corpus_blocks([tmp_path / "a.parquet"], 2))
