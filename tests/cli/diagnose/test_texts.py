from types import SimpleNamespace

import pytest

from unspool.cli.diagnose.texts import asked_texts, read_pairs, read_texts


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def test_a_plain_file_is_one_text(write):
    assert read_texts(write("a.txt", b"one\ntwo\n")) == ["one\ntwo\n"]
    assert read_texts(write("b", b"\xef\xbb\xbfone")) == ["one"]


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
        ("a.txt", b"one", r"a\.txt: the model is an encoder–decoder, .* whose name ends in \.jsonl"),
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
    asked = SimpleNamespace(model="m", text=path, limit=2)
    assert asked_texts(SimpleNamespace(text=object(), answers=True), asked) == (["ein"] * 2, ["one"] * 2)
    assert asked_texts(SimpleNamespace(text=object(), answers=False), asked) == (None, ["x"] * 2)
    with pytest.raises(ValueError, match="m has no tokenizer"):
        asked_texts(SimpleNamespace(text=None, answers=False), asked)
