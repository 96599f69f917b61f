from types import SimpleNamespace

import pytest

from unspool.cli.diagnose.texts import asked_texts, layout_of, read_pairs, read_texts
from unspool.data import JSONL, TSV, LabelledLines, Lines, TaggedLines
from unspool.data.records import Layout


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_a_plain_file_has_a_text_on_each_line_and_it_is_said(write, capsys):
    path = write("a.txt", b"one\n\ntwo\n")
    assert read_texts(path) == ["one", "two"]
    assert "2 texts, one a line (--document file" in capsys.readouterr().err
    assert read_texts(path, Layout(document="file")) == ["one\n\ntwo\n"]
    assert read_texts(write("b", b"\xef\xbb\xbfone")) == ["one"]
    assert capsys.readouterr().err == ""


def test_json_lines_are_many(write):
    path = write("a.jsonl", '{"text": "one\u2028"}\n\n{"text": "two", "id": 3}\n'.encode())
    assert read_texts(path) == ["one\u2028", "two"]
    assert read_texts(path, limit=1) == ["one\u2028"]


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.txt", b" \n", "no text in this file"),
        ("a.jsonl", b"", "no text in this file"),
        ("a.jsonl", b'{"text": "a"}\nx', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"txt": "a"}', r"a\.jsonl:1: expected"),
        ("a.jsonl", b'{"text": 3}', r"a\.jsonl:1: expected"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(write, name, data, match):
    with pytest.raises(ValueError, match=match):
        read_texts(write(name, data))


def test_pairs_are_json_lines(write):
    path = write("a.jsonl", b'{"source": "one", "target": "eins"}\n\n{"source": "two", "target": "zwei"}\n')
    assert read_pairs(path) == (["one", "two"], ["eins", "zwei"])
    assert read_pairs(path, limit=1) == (["one"], ["eins"])


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.txt", b"one", r"a\.txt:1: an encoder–decoder is measured on pairs: .* \(\.tsv\)"),
        ("a.jsonl", b"\n", r"a\.jsonl: there is no pair in this file"),
        ("a.jsonl", b'{"source": "a", "target": "b"}\n{"text": "a"}', r'a\.jsonl:2: expected \{"source"'),
        ("a.jsonl", b'{"source": "a", "target": 1}', r"a\.jsonl:1: expected"),
        ("a.jsonl", b"[", r"a\.jsonl:1: not JSON"),
    ],
)
def test_what_is_no_pair_is_refused(write, name, data, match):
    with pytest.raises(ValueError, match=match):
        read_pairs(write(name, data))


def test_what_is_asked_for_suits_the_model(write):
    path = write("pairs.jsonl", b'{"source": "ein", "target": "one", "text": "x"}\n' * 3)
    asked = SimpleNamespace(model="m", text=path, limit=2, columns=None, document=None)
    assert asked_texts(SimpleNamespace(tokenizer=object(), is_encoder_decoder=True), asked) == (
        ["ein"] * 2,
        ["one"] * 2,
    )
    assert asked_texts(SimpleNamespace(tokenizer=object(), is_encoder_decoder=False), asked) == (
        None,
        ["x"] * 2,
    )
    with pytest.raises(ValueError, match="m has no tokenizer"):
        asked_texts(SimpleNamespace(tokenizer=None, is_encoder_decoder=False), asked)


def test_columns_are_pairs(write):
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
    with pytest.raises(ValueError, match="2 tab-separated columns, but column 3 is wanted"):
        read_pairs(path, Layout(columns=(1, 3)))


def test_a_run_reads_files_as_in_training_whatever_they_are_called(write):
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
