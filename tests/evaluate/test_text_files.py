import json

import pytest

from unspool.data import JSONL, TSV, LabelledLines, Lines, TaggedLines
from unspool.data.records import Layout
from unspool.evaluate.text_files import (
    layout_of,
    read_outputs,
    read_pairs,
    read_systems,
    read_texts,
    shared_prompts,
)


def lines(path, *records):
    path.write_text("".join(json.dumps(it) + "\n" for it in records), encoding="utf-8")
    return path


def test_outputs_are_read_from_json_lines_with_prompts(tmp_path):
    path = lines(
        tmp_path / "ours.jsonl", {"prompt": "p", "text": "a", "logps": [1]}, {"prompt": "q", "text": ""}
    )
    found = read_outputs(path)
    assert (found.name, found.texts, found.prompts) == ("ours", ("a", ""), ("p", "q"))


def test_plain_outputs_keep_empty_lines(tmp_path):
    path = tmp_path / "a.b.txt"
    path.write_bytes("one\r\n\r\nthr\u2028ee\r\n".encode())
    found = read_outputs(path)
    assert (found.name, found.texts, found.prompts) == ("a.b", ("one", "", "thr\u2028ee"), None)


def test_systems_are_named_by_the_argument_or_the_file(tmp_path):
    (tmp_path / "x.txt").write_text("a\n")
    (tmp_path / "n=x.txt").write_text("b\n")
    first, second = read_systems([f"ours={tmp_path}/x.txt", f"{tmp_path}/n=x.txt"])
    assert (first.name, second.name, second.texts) == ("ours", "n=x", ("b",))
    with pytest.raises(ValueError, match="two systems are called 'x'"):
        read_systems([f"{tmp_path}/x.txt", f"{tmp_path}/x.txt"])
    with pytest.raises(ValueError, match="does not name a system"):
        read_systems([f"={tmp_path}/x.txt"])


def test_shared_prompts_come_from_the_outputs_or_a_file(tmp_path):
    a = read_outputs(lines(tmp_path / "a.jsonl", {"prompt": "p", "text": "1"}))
    b = read_outputs(lines(tmp_path / "b.jsonl", {"prompt": "q", "text": "2"}))
    c = read_outputs(lines(tmp_path / "c.jsonl", {"text": "2"}))
    assert shared_prompts([a, a], None) == ["p"]
    with pytest.raises(ValueError, match="must answer the same prompts"):
        shared_prompts([a, b], None)
    with pytest.raises(ValueError, match="c has no prompts: give --prompts"):
        shared_prompts([a, c], None)
    (tmp_path / "p.txt").write_text("x\n")
    assert shared_prompts([a, c], tmp_path / "p.txt") == ["x"]
    assert shared_prompts([c], lines(tmp_path / "p.jsonl", {"prompt": "y"})) == ["y"]
    (tmp_path / "p.txt").write_text("x\ny\n")
    with pytest.raises(ValueError, match=r"a has 1 outputs but .*p\.txt has 2 prompts"):
        shared_prompts([a], tmp_path / "p.txt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "contains no output"),
        ("\n\n", "contains no output"),
        ('{"text": " "}\n', "all 1 outputs are empty"),
        ("{", "x.jsonl:1: not JSON"),
        ("[1]", 'x.jsonl:1: expected {"text"'),
        ('{"text": 3}', 'x.jsonl:1: expected {"text"'),
        ('{"text": "a", "prompt": 3}', 'x.jsonl:1: "prompt" must be a string'),
        ('{"text": "a"}\n{"text": "a", "prompt": "b"}', "1 of 2 lines have a prompt"),
        ('{"text": "\\ud800"}', "lone surrogate"),
    ],
)
def test_an_invalid_output_file_raises(tmp_path, content, said):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError) as error:
        read_outputs(path)
    assert said in str(error.value)


@pytest.mark.parametrize("line", ["{", '{"text": "a"}'])
def test_an_invalid_prompt_file_raises_with_the_line(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(line)
    system = read_outputs(lines(tmp_path / "a.jsonl", {"text": "1"}))
    with pytest.raises(ValueError, match=r"p\.jsonl:1: (not JSON|expected)"):
        shared_prompts([system], tmp_path / "p.jsonl")


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_a_plain_file_has_one_text_per_line_with_a_warning(write):
    path = write("a.txt", b"one\n\ntwo\n")
    with pytest.warns(match=r"2 texts, one a line \(--document file reads the file as one text\)"):
        assert read_texts(path) == ["one", "two"]
    assert read_texts(path, Layout(document="file")) == ["one\n\ntwo\n"]
    assert read_texts(write("b", b"\xef\xbb\xbfone")) == ["one"]


def test_a_jsonl_file_has_one_text_per_line(write):
    path = write("a.jsonl", '{"text": "one\u2028"}\n\n{"text": "two", "id": 3}\n'.encode())
    assert read_texts(path) == ["one\u2028", "two"]
    assert read_texts(path, limit=1) == ["one\u2028"]


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.txt", b" \n", "contains no text"),
        ("a.jsonl", b"", "contains no text"),
        ("a.jsonl", b'{"text": "a"}\nx', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"txt": "a"}', r"a\.jsonl:1: expected"),
        ("a.jsonl", b'{"text": 3}', r"a\.jsonl:1: expected"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_an_invalid_text_file_raises_with_the_line(write, name, data, match):
    with pytest.raises(ValueError, match=match):
        read_texts(write(name, data))


def test_pairs_are_read_from_json_lines(write):
    path = write("a.jsonl", b'{"source": "one", "target": "eins"}\n\n{"source": "two", "target": "zwei"}\n')
    assert read_pairs(path) == (["one", "two"], ["eins", "zwei"])
    assert read_pairs(path, limit=1) == (["one"], ["eins"])


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.txt", b"one", r"a\.txt:1: an encoder–decoder is measured on pairs: .* \(\.tsv\)"),
        ("a.jsonl", b"\n", r"a\.jsonl: the file contains no pair"),
        ("a.jsonl", b'{"source": "a", "target": "b"}\n{"text": "a"}', r'a\.jsonl:2: expected \{"source"'),
        ("a.jsonl", b'{"source": "a", "target": 1}', r"a\.jsonl:1: expected"),
        ("a.jsonl", b"[", r"a\.jsonl:1: not JSON"),
    ],
)
def test_an_invalid_pair_file_raises_with_the_line(write, name, data, match):
    with pytest.raises(ValueError, match=match):
        read_pairs(write(name, data))


def test_pairs_are_read_from_tsv_columns(write):
    path = write("a.tsv", b"one\teins\n\ntwo\tzwei\n")
    assert read_pairs(path) == (["one", "two"], ["eins", "zwei"])
    with pytest.raises(ValueError, match=r"a\.tsv:1: this is a pair, but a text is expected"):
        read_texts(path)
    wide = write("b.tsv", b"7\tone\t8\teins\n")
    with pytest.raises(
        ValueError, match=r"b\.tsv:1: 4 tab-separated columns, .* \(--columns SOURCE TARGET\)"
    ):
        read_pairs(wide)
    assert read_pairs(wide, Layout(columns=(2, 4))) == (["one"], ["eins"])
    with pytest.raises(ValueError, match="2 tab-separated columns, but column 3 is needed"):
        read_pairs(path, Layout(columns=(1, 3)))


def test_the_layout_of_a_recipe_overrides_the_file_suffix(write):
    path = write("deu.txt", b"7\tone\t8\teins\n")
    assert read_pairs(path, layout_of(TSV(train="x", source=2, target=4))) == (["one"], ["eins"])
    path = write("a.jsonl", b'{"en": "one", "de": "eins"}')
    assert read_pairs(path, layout_of(JSONL(train="x", source="en", target="de"))) == (["one"], ["eins"])
    assert read_texts(path, layout_of(JSONL(train="x", text="de"))) == ["eins"]
    path = write("plain.txt", b"one\ntwo")
    assert read_texts(path, layout_of(Lines(train="x", document="file"))) == ["one\ntwo"]
    path = write("labels.tsv", b"good\tone two\n")
    assert read_texts(path, layout_of(LabelledLines(train="x"))) == ["one two"]
    assert read_texts(write("tags.tsv", b"one two\tA B\n"), layout_of(TaggedLines(train="x"))) == ["one two"]
