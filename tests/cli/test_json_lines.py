import pytest

from unspool.cli.json_lines import decoded, json_lines, split_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


def test_the_fields_of_every_line_and_where_they_stand(path):
    path.write_text('\ufeff{"a": "1", "b": "2"}\n\n{"b": "x\u2028y", "a": "", "c": 3}\n', encoding="utf-8")
    assert list(json_lines(path, ("a", "b"), "…")) == [
        (f"{path}:1", ("1", "2")),
        (f"{path}:3", ("", "x\u2028y")),
    ]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b'{"a": "1"}\nx', r"a\.jsonl:2: not JSON .* expected THIS"),
        (b'{"b": "1"}', r"a\.jsonl:1: expected THIS, found \{\"b\""),
        (b'{"a": 1}', r"a\.jsonl:1: expected THIS"),
        (b'["a"]', r"a\.jsonl:1: expected THIS"),
        (b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        (b"\xff", r"a\.jsonl: not UTF-8"),
    ],
)
def test_other_lines_are_refused(path, data, match):
    path.write_bytes(data)
    with pytest.raises(ValueError, match=match):
        list(json_lines(path, ("a",), "THIS"))


def test_a_mark_of_byte_order_is_no_text(path):
    path.write_bytes(b"\xef\xbb\xbfone\r\n")
    assert decoded(path) == "one\r\n"


def test_every_end_of_a_line_is_one():
    assert split_lines("a\nb\r\nc\rd\u2028e\n\rf") == ["a", "b", "c", "d\u2028e", "", "f"]
