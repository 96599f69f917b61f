from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unspool.data.examples import Pairs, Texts
from unspool.data.line_formats import JSONL
from unspool.data.rows import no_progress

Write = Callable[..., str]


def lines(*objects: Any) -> str:
    return "".join(json.dumps(it) + "\n" for it in objects)


def test_a_text_a_line(write: Write) -> None:
    data = JSONL(train=write("a.jsonl", lines({"t": "a b", "id": 3}) + "\n" + lines({"t": "é\nc"})), text="t")
    assert list(data.train_rows(no_progress)) == [("a b",), ("é\nc",)]
    assert data.form(()) == Texts()
    assert not data.holds_out_last


def test_a_pair_a_line(write: Write) -> None:
    data = JSONL(train=write("a.jsonl", lines({"en": "one", "de": "eins"})), source="de", target="en")
    assert list(data.train_rows(no_progress)) == [("eins", "one")]
    assert data.form(()) == Pairs()


def test_every_turn_answers_those_before_it(write: Write) -> None:
    spoken = lines({"d": ["hi", "hello", "bye"]}, {"d": [{"role": "user", "content": "x"}, {"content": "y"}]})
    data = JSONL(train=write("a.jsonl", spoken), turns="d", history=2)
    assert list(data.train_rows(no_progress)) == [("hi", "hello"), ("hi\nhello", "bye"), ("x", "y")]
    assert data.form(()) == Pairs()
    assert data.holds_out_last


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{'t': 1}", r"a\.jsonl, line 2 is not JSON"),
        ("[" * 100_000, "line 2 is not JSON"),
        ('["t"]', "line 2 is a JSON list, not an object"),
        ('{"u": "x"}', "line 2 has no field 't'; it has 'u'"),
        ("{}", "line 2 has no field 't'; it has none"),
        ('{"t": 5}', "line 2: the field 't' is 5, not a string"),
        (r'{"t": "a\ud800"}', r"line 2 has a lone surrogate \(U\+D800\)"),
    ],
)
def test_an_invalid_line_is_named(write: Write, line: str, said: str) -> None:
    data = JSONL(train=write("a.jsonl", lines({"t": "fine"}) + line + "\n"), text="t")
    with pytest.raises(ValueError, match=said):
        list(data.train_rows(no_progress))


@pytest.mark.parametrize("turns", ["hi", [1, 2], [{"content": 1}], [{"text": "x"}], {"content": "x"}])
def test_invalid_turns_are_refused(write: Write, turns: Any) -> None:
    with pytest.raises(ValueError, match=r"the field 'd' must be a list of strings"):
        list(JSONL(train=write("a.jsonl", lines({"d": turns})), turns="d").train_rows(no_progress))


@pytest.mark.parametrize(
    "fields", [{}, {"source": "a"}, {"text": "a", "turns": "b"}, {"target": "a", "text": "b"}]
)
def test_the_fields_must_belong_together(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give text, or source and target, or turns"):
        JSONL(train="a", **fields)  # type: ignore[arg-type]


def test_an_answer_sees_something() -> None:
    with pytest.raises(ValueError, match="history is 0"):
        JSONL(train="a", turns="d", history=0)
