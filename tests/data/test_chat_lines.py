from __future__ import annotations

from collections.abc import Callable

import pytest

from unspool.data.chats import ChatLines, Chats
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_a_line_is_a_conversation_by_hand(write: Write) -> None:
    data = ChatLines(train=write("a.txt", "Hi __eou__ Hello __eou__ Bye __eou__\nalone\n\n"))
    assert list(data.train_rows(no_progress)) == [("user", "Hi", "assistant", "Hello")]
    assert data.form(()) == Chats()


def test_the_system_speaks_first(write: Write) -> None:
    data = ChatLines(train=write("a.txt", "a | b\n"), mark="|", system="Be brief.")
    assert list(data.train_rows(no_progress)) == [("system", "Be brief.", "user", "a", "assistant", "b")]


def test_invalid_lines_are_refused(write: Write) -> None:
    with pytest.raises(ValueError, match="no line with two turns: is '__eou__'"):
        list(ChatLines(train=write("a.txt", "a | b\n")).train_rows(no_progress))
    with pytest.raises(ValueError, match="mark is empty"):
        ChatLines(train="a", mark="")
