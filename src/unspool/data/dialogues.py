"""Dialogues → pairs: every turn is an answer to those before it.

    u₁ u₂ u₃   →   (u₁, u₂), (u₁ u₂, u₃)      with a history of 2

A history's turns have a line end between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Pairs, Row, RowForm
from unspool.data.text_files import TextFiles

BETWEEN = "\n"
"""Between the turns of a history: what no single turn of a file of lines can hold."""


@dataclass(frozen=True, kw_only=True)
class Dialogues(TextFiles):
    """One dialogue a line, its turns separated by a mark."""

    mark: str = "__eou__"
    """What stands between two turns (and may stand after the last one)."""
    history: int = 1
    """How many turns before it an answer sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history < 1:
            raise ValueError(f"history is {self.history}; an answer sees 1 turn or more")
        if not self.mark:
            raise ValueError("mark is empty: say what stands between two turns")

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Pairs()

    @property
    def hangs_together(self) -> bool:
        """An answer is a question in the next row: held out at random, it would be seen in training."""
        return True

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        found = 0
        for line in read_lines(path, self.max_line_bytes, advance):
            turns = [turn.strip() for turn in line.split(self.mark)]
            for row in replies([turn for turn in turns if turn], self.history):
                found += 1
                yield row
        if not found:
            raise ValueError(f"{path} has no line with two turns: is {self.mark!r} what stands between them?")


def replies(turns: Sequence[str], history: int) -> Iterator[Row]:
    """(what was said before, the answer) for every turn but the first."""
    for at in range(1, len(turns)):
        yield BETWEEN.join(turns[max(0, at - history) : at]), turns[at]
