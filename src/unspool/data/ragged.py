"""Rows of different lengths, end to end in one array: in memory, or in a file that is only mapped.

row i = values[offsets[i] : offsets[i + 1]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.data.random_orders import Ints


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of token ids (or labels)."""

    values: npt.NDArray[Any]
    """All rows, one after the other; uint16 or uint32."""
    offsets: Ints
    """Where each row begins, and where the last one ends."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        """One row, as int64."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return np.asarray(self.values[self.offsets[row] : self.offsets[row + 1]], dtype=np.int64)

    @property
    def lengths(self) -> Ints:
        """How long each row is."""
        return np.diff(self.offsets)

    def padded(self, rows_N: Ints, lengths_N: Ints, skip: int = 0) -> Ints:
        """(N, T): the values of these rows from the `skip`-th on, `lengths_N` of each; 0 after them."""
        times_T = np.arange(int(lengths_N.max(initial=0)))
        real_NT = times_T < lengths_N[:, None]
        places_NT = np.where(real_NT, self.offsets[rows_N][:, None] + skip + times_T, 0)
        return np.where(real_NT, self.values[places_NT], 0).astype(np.int64)


def ragged(rows: list[list[int]]) -> Ragged:
    """Rows that are in memory already."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Ragged(np.fromiter((it for row in rows for it in row), dtype=np.uint32), offsets)
