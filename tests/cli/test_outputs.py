import json

import pytest

from unspool.cli.outputs import read_outputs, read_systems, shared_prompts


def lines(path, *records):
    path.write_text("".join(json.dumps(it) + "\n" for it in records), encoding="utf-8")
    return path


def test_json_lines_with_prompts(tmp_path):
    path = lines(
        tmp_path / "ours.jsonl", {"prompt": "p", "text": "a", "logps": [1]}, {"prompt": "q", "text": ""}
    )
    found = read_outputs(path)
    assert (found.name, found.texts, found.prompts) == ("ours", ("a", ""), ("p", "q"))


def test_plain_lines_of_which_some_are_empty(tmp_path):
    path = tmp_path / "a.b.txt"
    path.write_bytes("one\r\n\r\nthr\u2028ee\r\n".encode())
    found = read_outputs(path)
    assert (found.name, found.texts, found.prompts) == ("a.b", ("one", "", "thr\u2028ee"), None)


def test_names(tmp_path):
    (tmp_path / "x.txt").write_text("a\n")
    (tmp_path / "n=x.txt").write_text("b\n")
    first, second = read_systems([f"ours={tmp_path}/x.txt", f"{tmp_path}/n=x.txt"])
    assert (first.name, second.name, second.texts) == ("ours", "n=x", ("b",))
    with pytest.raises(ValueError, match="two systems are called 'x'"):
        read_systems([f"{tmp_path}/x.txt", f"{tmp_path}/x.txt"])
    with pytest.raises(ValueError, match="names no system"):
        read_systems([f"={tmp_path}/x.txt"])


def test_prompts_that_all_share(tmp_path):
    a = read_outputs(lines(tmp_path / "a.jsonl", {"prompt": "p", "text": "1"}))
    b = read_outputs(lines(tmp_path / "b.jsonl", {"prompt": "q", "text": "2"}))
    c = read_outputs(lines(tmp_path / "c.jsonl", {"text": "2"}))
    assert shared_prompts([a, a], None) == ["p"]
    with pytest.raises(ValueError, match="did not answer the same prompts"):
        shared_prompts([a, b], None)
    with pytest.raises(ValueError, match="c have no prompts: give --prompts"):
        shared_prompts([a, c], None)
    (tmp_path / "p.txt").write_text("x\n")
    assert shared_prompts([a, c], tmp_path / "p.txt") == ["x"]
    assert shared_prompts([c], lines(tmp_path / "p.jsonl", {"prompt": "y"})) == ["y"]
    (tmp_path / "p.txt").write_text("x\ny\n")
    with pytest.raises(ValueError, match=r"a has 1 outputs, and .*p\.txt 2 prompts"):
        shared_prompts([a], tmp_path / "p.txt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no output in this file"),
        ("\n\n", "no output in this file"),
        ('{"text": " "}\n', "all 1 outputs are empty"),
        ("{", "x.jsonl:1: not JSON"),
        ("[1]", 'x.jsonl:1: expected {"text"'),
        ('{"text": 3}', 'x.jsonl:1: expected {"text"'),
        ('{"text": "a", "prompt": 3}', 'x.jsonl:1: "prompt" must be a string'),
        ('{"text": "a"}\n{"text": "a", "prompt": "b"}', "1 of 2 lines have a prompt"),
        ('{"text": "\\ud800"}', "half a character"),
    ],
)
def test_what_are_no_outputs_is_named(tmp_path, content, said):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError) as error:
        read_outputs(path)
    assert said in str(error.value)


@pytest.mark.parametrize("line", ["{", '{"text": "a"}'])
def test_what_are_no_prompts_is_named(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(line)
    system = read_outputs(lines(tmp_path / "a.jsonl", {"text": "1"}))
    with pytest.raises(ValueError, match=r"p\.jsonl:1: (not JSON|expected)"):
        shared_prompts([system], tmp_path / "p.jsonl")
