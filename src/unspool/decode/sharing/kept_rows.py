"""Rows that nobody uses any more, kept because the next prompt may begin as they do.

What rows have in common is held once (`nn.compiled.pool`): to let go of a row frees what it had for itself.
The least recently used one goes first (Zheng et al. 2024, §3; papers.bib: zheng2024sglang).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unspool.decode.sharing.lane import Lane
from unspool.decode.sharing.row_texts import RowTexts

MOST_ROWS = 256


class KeptRows:
    """Lanes of one row each, the least recently used first."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.lanes = most_bytes, list[Lane]()

    def add(self, row: int, texts: RowTexts) -> None:
        """Keep a row, in place of those that are its beginning."""
        self.lanes = [lane for lane in self.lanes if not texts.begins_with(row, lane.rows[0])]
        self.lanes.append(Lane([row]))

    def use(self, row: int) -> None:
        """A prompt began as this row does, if it is one of these: it goes last."""
        self.lanes.sort(key=lambda lane: lane.rows[0] == row)

    def shrink(self, bytes_held: Callable[[Sequence[int]], int]) -> None:
        """Let go of rows until the others fit into the memory that there is for them."""
        self.lanes = self.lanes[-MOST_ROWS:]
        while self.lanes and bytes_held([lane.rows[0] for lane in self.lanes]) > self._most:
            del self.lanes[0]
