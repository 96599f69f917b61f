"""Rows that nobody uses any more, kept because the next prompt may begin as they do.

What rows have in common is held once (`nn.compiled.pool`): to let go of a row frees what it had for itself.
The least recently used one goes first (Zheng et al. 2024, §3; papers.bib: zheng2024sglang).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

# What every row of a state has read, so that a prompt finds the row that begins as it does.


Whole = NDArray[np.int64]
NOTHING = -1
"""Where a row has no token."""


class RowTokens:
    """The tokens of N rows."""

    def __init__(self) -> None:
        self._tokens_NC: Whole = np.full((0, 64), NOTHING)
        self.lengths_N: Whole = np.zeros(0, np.int64)

    def add(self, texts: Sequence[Sequence[int]]) -> None:
        """New rows behind all others."""
        first = len(self.lengths_N)
        self.lengths_N = np.concatenate([self.lengths_N, np.zeros(len(texts), np.int64)])
        empty = np.full((len(texts), self._tokens_NC.shape[1]), NOTHING)
        self._tokens_NC = np.concatenate([self._tokens_NC, empty])
        self.append(range(first, first + len(texts)), texts)

    def append(self, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> None:
        """Tokens behind those of some rows."""
        for row, text in zip(rows, texts, strict=True):
            begin = int(self.lengths_N[row])
            self._widen(begin + len(text))
            self._tokens_NC[row, begin : begin + len(text)] = text
            self.lengths_N[row] += len(text)

    def forget(self, rows: Sequence[int], tokens: int) -> None:
        """The last tokens of some rows."""
        for row in rows:
            self.lengths_N[row] -= tokens
            self._tokens_NC[row, self.lengths_N[row] :] = NOTHING

    def select(self, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop rows."""
        self._tokens_NC, self.lengths_N = self._tokens_NC[list(rows)], self.lengths_N[list(rows)]

    def nearest(self, text: Sequence[int]) -> tuple[int, int]:
        """The row that has the longest beginning in common with a text, and how long that is."""
        width = min(len(text), self._tokens_NC.shape[1])
        if not len(self.lengths_N) or not width:
            return 0, 0
        same_NW = self._tokens_NC[:, :width] == np.asarray(text[:width])
        common_N = np.where(same_NW.all(axis=1), width, same_NW.argmin(axis=1))
        row = int(common_N.argmax())
        return row, int(common_N[row])

    def begins_with(self, row: int, other: int) -> bool:
        """Whether all that the other row has read is the beginning of what this one has."""
        length = int(self.lengths_N[other])
        mine, theirs = self._tokens_NC[row, :length], self._tokens_NC[other, :length]
        return bool(np.array_equal(mine, theirs))

    def _widen(self, columns: int) -> None:
        if columns > self._tokens_NC.shape[1]:
            wider = np.full((len(self.lengths_N), max(columns, 2 * self._tokens_NC.shape[1])), NOTHING)
            wider[:, : self._tokens_NC.shape[1]] = self._tokens_NC
            self._tokens_NC = wider


# Where the rows of one asker stand in a batch that many share.


@dataclass(eq=False)
class Slot:
    """The rows of one asker's state."""

    rows: list[int]
    columns: int | None = None
    """Places of the source that its Steps tell of; a batch-mate's source may be longer."""
    open: bool = True
    """False from when its asker has left."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """Rows of a lane, as they are to be when the model is next asked about them."""

    lane: Slot
    rows: tuple[int, ...]

    def select(self, rows_M: Tensor) -> SlotState:
        """Reorder, repeat or drop rows: it is done before the next step."""
        return replace(self, rows=tuple(self.rows[row] for row in rows_M.tolist()))


MOST_ROWS = 256


class PrefixCache:
    """Lanes of one row each, the least recently used first."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.lanes = most_bytes, list[Slot]()

    def add(self, row: int, texts: RowTokens) -> None:
        """Keep a row, in place of those that are its beginning."""
        self.lanes = [lane for lane in self.lanes if not texts.begins_with(row, lane.rows[0])]
        self.lanes.append(Slot([row]))

    def use(self, row: int) -> None:
        """A prompt began as this row does, if it is one of these: it goes last."""
        self.lanes.sort(key=lambda lane: lane.rows[0] == row)

    def shrink(self, bytes_held: Callable[[Sequence[int]], int]) -> None:
        """Let go of rows until the others fit into the memory that there is for them."""
        self.lanes = self.lanes[-MOST_ROWS:]
        while self.lanes and bytes_held([lane.rows[0] for lane in self.lanes]) > self._most:
            del self.lanes[0]


WORTH_WAITING = 64
"""Tokens that must be spared for a prompt to wait for another one: a pass reads as many at once."""


class PrefixMatch(NamedTuple):
    """A prompt, and the row whose first `length` tokens are its beginning.

    Which prompts are read in the next pass, and behind which rows that have read their beginning already.

        read(prompt) = fork(row*, c) + prompt_{>c},   row* = argmax_row c(row),   c = |common beginning|

    Of prompts that come together and begin alike one is read first; the others then find its row
    (Zheng et al. 2024, §3; papers.bib: zheng2024sglang).
    """

    prompt: int
    row: int
    length: int


def plan_prefill(
    texts: RowTokens, prompts: Sequence[Sequence[int]], waiting: Sequence[int]
) -> tuple[list[PrefixMatch], list[int]]:
    """Those of the waiting prompts that are read now, and those that wait for one of these."""
    now, later, reading = list[PrefixMatch](), list[int](), RowTokens()
    for place in waiting:
        text = prompts[place][:-1]  # the last token is read again: the first Step is about what follows it
        row, length = texts.nearest(text)
        if reading.nearest(text)[1] >= length + WORTH_WAITING:
            later.append(place)
        else:
            now.append(PrefixMatch(place, row, length))
            reading.add([prompts[place]])
    return now, later
