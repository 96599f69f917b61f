"""What every row of a state has read, so that a prompt finds the row that begins as it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
NOTHING = -1
"""Where a row has no token."""


class RowTexts:
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
