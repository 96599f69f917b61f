from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from unspool.data.examples import Pairs
from unspool.data.line_formats import TURN_SEPARATOR, Dialogues, reply_pairs
from unspool.data.rows import no_progress

Write = Callable[..., str]


def test_a_line_is_a_dialogue_by_hand(write: Write) -> None:
    data = Dialogues(train=write("a.txt", "Hi . __eou__ Hello . __eou__ Bye . __eou__\nalone\n\n"))
    assert list(data.train_rows(no_progress)) == [("Hi .", "Hello ."), ("Hello .", "Bye .")]
    assert data.form(()) == Pairs()
    assert data.holds_out_last


@given(st.lists(st.text("ab", min_size=1), max_size=6), st.integers(1, 4))
def test_every_turn_but_the_first_is_an_answer(turns: list[str], history: int) -> None:
    rows = list(reply_pairs(turns, history))
    assert [answer for _, answer in rows] == turns[1:]
    for at, (before, _) in enumerate(rows, start=1):
        assert before.split(TURN_SEPARATOR) == turns[max(0, at - history) : at]


def test_a_mark_that_never_comes_is_said(write: Write) -> None:
    with pytest.raises(ValueError, match="no line with two turns: is '__eou__'"):
        list(Dialogues(train=write("a.txt", "a | b\n")).train_rows(no_progress))


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="history is 0"):
        Dialogues(train="a", history=0)
    with pytest.raises(ValueError, match="mark is empty"):
        Dialogues(train="a", mark="")
