"""The keys and values of one layer, kept while a sequence grows.

Preallocated and doubled when full, so that a step writes one column and copies nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValues:
    """Keys and values of N rows: (N, K, capacity, I), of which the first `length` columns are filled."""

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self._room = room
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys_NKTI: Tensor, values_NKTI: Tensor) -> tuple[Tensor, Tensor]:
        """Add T columns; returns all of them."""
        start, self.length = self.length, self.length + keys_NKTI.shape[2]
        if self._keys is None or self._values is None or self.length > self._keys.shape[2]:
            capacity = max(2 * start, self.length + self._room)
            self._keys = self._grown(self._keys, keys_NKTI, start, capacity)
            self._values = self._grown(self._values, values_NKTI, start, capacity)
        self._keys[:, :, start : self.length] = keys_NKTI
        self._values[:, :, start : self.length] = values_NKTI
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def append_one(self, keys_NKI: Tensor, values_NKI: Tensor) -> tuple[Tensor, Tensor]:
        """Add a single column; returns all of them."""
        start = self.length
        if self._keys is None or self._values is None or start == self._keys.shape[2]:
            return self.append(keys_NKI.unsqueeze(2), values_NKI.unsqueeze(2))
        self.length = start + 1
        self._keys.select(2, start).copy_(keys_NKI)
        self._values.select(2, start).copy_(values_NKI)
        return self._keys.narrow(2, 0, start + 1), self._values.narrow(2, 0, start + 1)

    def select(self, rows_M: Tensor, since: int = 0) -> None:
        """Reorder, repeat or drop rows, where rows are known to agree on the columns before `since`."""
        if self._keys is None or self._values is None:
            return
        if len(rows_M) == len(self._keys):
            for kept in (self._keys, self._values):
                kept[:, :, since : self.length] = kept[:, :, since : self.length].index_select(0, rows_M)
        else:
            # The columns that are still free are not worth copying.
            self._keys, self._values = (self._moved(kept, rows_M) for kept in (self._keys, self._values))

    def truncate(self, length: int) -> None:
        """Forget the columns from `length` on."""
        self.length = min(self.length, length)

    def _moved(self, kept: Tensor, rows_M: Tensor) -> Tensor:
        moved = kept.new_empty(len(rows_M), *kept.shape[1:])
        moved[:, :, : self.length] = kept[:, :, : self.length].index_select(0, rows_M)
        return moved

    @staticmethod
    def _grown(old: Tensor | None, new_NKTI: Tensor, filled: int, capacity: int) -> Tensor:
        rows, heads, _, width = new_NKTI.shape
        grown = torch.empty(rows, heads, capacity, width, dtype=new_NKTI.dtype, device=new_NKTI.device)
        if old is not None:
            grown[:, :, :filled] = old[:, :, :filled]
        return grown
