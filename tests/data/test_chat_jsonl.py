from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unspool.data.chats import ChatJSONL, Chats
from unspool.data.rows import no_progress

Write = Callable[..., str]


def line(*said: tuple[str, Any], field: str = "messages") -> str:
    return json.dumps({field: [{"role": role, "content": content} for role, content in said]}) + "\n"


def test_messages_up_to_the_last_answer_by_hand(write: Write) -> None:
    data = ChatJSONL(train=write("a.jsonl", line(("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"))))
    assert list(data.train_rows(no_progress)) == [("user", "Hi", "assistant", "Hello")]
    assert data.form(()) == Chats()
    other = ChatJSONL(train=write("b.jsonl", "\n" + line(("assistant", "x"), field="talk")), messages="talk")
    assert list(other.train_rows(no_progress)) == [("assistant", "x")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (line(("user", "Hi")), r"line 1: no message has the role 'assistant'"),
        (line(("user", 3)), r'line 1: messages must be a list of objects with a "role" and a "content"'),
        ('{"messages": "Hi"}\n', r"line 1: messages must be a list"),
        ('{"talk": []}\n', r"line 1 has no field 'messages'"),
        ("{\n", r"line 1 is not JSON"),
    ],
)
def test_errors_name_their_line(write: Write, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(ChatJSONL(train=write("a.jsonl", content)).train_rows(no_progress))
