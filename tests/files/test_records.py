import pytest

from unspool.data.records import Layout, read_records, read_utf8, split_lines

MESSAGES = '{"messages": [{"role": "user", "content": "hi"}]}'


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def taken(record, what):
    try:
        return getattr(record, what)()
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("name", "line", "prompt", "text", "output", "pair"),
    [
        ("a.txt", "x\ty", "x\ty", "x\ty", "x\ty", None),
        ("a.tsv", "x\ty", "x", None, "y", ("x", "y")),
        ("a.tsv", "x", "x", "x", "x", None),
        ("a.jsonl", '{"prompt": "x"}', "x", "x", None, None),
        ("a.jsonl", '{"text": "y"}', None, "y", "y", None),
        ("a.jsonl", '{"prompt": "x", "text": "y"}', "x", "y", "y", ("x", "y")),
        ("a.ndjson", '{"source": "x", "target": "y"}', "x", None, "y", ("x", "y")),
        ("a.jsonl", MESSAGES, ({"role": "user", "content": "hi"},), None, None, None),
        ("a.jsonl", '{"prompt": 1, "text": [], "source": null}', None, None, None, None),
    ],
)
def test_the_rule(write, name, line, prompt, text, output, pair):
    (record,) = read_records(write(name, line + "\n"))
    found = [taken(record, what) for what in ("prompt", "text", "output", "pair")]
    assert found == [prompt, text, output, pair]


def test_blank_lines_are_skipped_unless_lines_are_aligned(write):
    path = write("a.txt", "one\n\n two\n")
    assert [(it.where, it.content) for it in read_records(path)] == [
        (f"{path}:1", "one"),
        (f"{path}:3", " two"),
    ]
    assert [it.content for it in read_records(path, keep_blank=True)] == ["one", "", " two"]
    assert len(read_records(write("a.jsonl", '\n{"text": "a"}\n\n'), keep_blank=True)) == 1


def test_other_fields_may_stay_and_others_may_be_named(write):
    path = write("a.jsonl", '\ufeff{"de": "x\u2028y", "n": 3}\n')
    assert [it.output() for it in read_records(path, Layout(fields={"target": "de"}))] == ["x\u2028y"]


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("a.jsonl", b'{"text": "1"}\nx', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'["a"]', r"a\.jsonl:1: expected"),
        ("a.jsonl", b'{"text": "a", "text": "b"}', 'the key "text" occurs twice'),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        ("a.json", b"[]", r"write one object a line to a \.jsonl"),
        ("a.txt", b"\xff", r"a\.txt: not UTF-8"),
    ],
)
def test_an_invalid_record_is_refused(write, name, data, match):
    with pytest.raises(ValueError, match=match):
        read_records(write(name, data))


def test_a_byte_order_mark_is_no_text(write):
    assert read_utf8(write("a", b"\xef\xbb\xbfone\r\n")) == "one\r\n"


def test_every_end_of_a_line_is_one():
    assert split_lines("a\nb\r\nc\rd\u2028e\n\rf") == ["a", "b", "c", "d\u2028e", "", "f"]
