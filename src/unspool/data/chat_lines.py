"""Dialogues of two people as conversations of a user and an assistant.

    u₁ __eou__ u₂ __eou__ u₃ __eou__   →   user: u₁, assistant: u₂

A last turn that nobody answers is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unspool.data.chats import ASSISTANT, USER, Chats
from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Row, RowForm
from unspool.data.text_files import TextFiles


@dataclass(frozen=True, kw_only=True)
class ChatLines(TextFiles):
    """One dialogue a line, its turns separated by a mark: user, assistant, … Answers alone are learnt."""

    mark: str = "__eou__"
    """What stands between two turns (and may stand after the last one)."""
    system: str | None = None
    """What the first message of every conversation says, from the system; None: what the template says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mark:
            raise ValueError("mark is empty: say what stands between two turns")

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Chats()

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        found = 0
        for line in read_lines(path, self.max_line_bytes, advance):
            turns = [turn.strip() for turn in line.split(self.mark) if turn.strip()]
            if len(turns) > 1:
                found += 1
                yield self._row(turns)
        if not found:
            raise ValueError(f"{path} has no line with two turns: is {self.mark!r} what stands between them?")

    def _row(self, turns: Sequence[str]) -> Row:
        answered = turns[: len(turns) // 2 * 2]
        said = [it for at, turn in enumerate(answered) for it in ((USER, ASSISTANT)[at % 2], turn)]
        return (*(() if self.system is None else ("system", self.system)), *said)
