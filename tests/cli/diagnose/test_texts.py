import pytest

from unspool.cli.diagnose.texts import read_texts


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
