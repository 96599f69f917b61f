"""One matrix as it is stored: packed rows, of which a few at a time become float32.

The bytes may be a map of a file. The system then reads them when they are first used, and can let go of them
again; the file must not change while it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.nn.stored.finite import all_finite
from unspool.nn.stored.formats import F32, INT8, Format
from unspool.nn.stored.unpacking import FLOATS, UNPACK

CHUNK = 1 << 18
"""Numbers restored at once: enough that torch's own overhead vanishes, few enough to stay in a cache."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A matrix of so many rows and columns. Nobody writes to it: copies of a model share it."""

    format: Format
    packed: Tensor
    """(rows, bytes of a row), uint8, rows behind each other; or sets of rows that lie side by side."""
    shape: tuple[int, int]
    """Rows and columns."""

    def __post_init__(self) -> None:
        rows, columns = self.shape
        expected = self.format.packed_shape(rows, columns)
        if tuple(self.packed.shape) != expected or self.packed.dtype != torch.uint8:
            raise ValueError(
                f"{rows} rows of {columns} numbers in {self.format.name} are {list(expected)} bytes, "
                f"and this is a tensor {list(self.packed.shape)} of {self.packed.dtype}"
            )
        if columns % self.format.block and self.format != INT8:
            raise ValueError(
                f"rows of {columns} numbers are no whole blocks of {self.format.block}, as "
                f"{self.format.name} has them"
            )
        if not self.packed.is_contiguous():
            raise ValueError("packed rows must lie behind each other: make the tensor contiguous")

    def __deepcopy__(self, memo: object) -> StoredWeight:
        return self

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.packed.nbytes

    def is_finite(self) -> bool:
        """Whether all numbers are: a file that was damaged, or a run that diverged, may hold others.

        Only the scales are looked at, where there are scales.
        """
        for blocks in torch.split(self.packed.view(-1, self.format.side * self.format.block_bytes), CHUNK):
            for at, kind in FLOATS[self.format]:
                if not all_finite(blocks[:, at : at + kind.itemsize].view(kind)):
                    return False
        return True

    def restore(self, rows: slice | Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """The numbers of these rows (of all, where none are named) in float32: (R, columns)."""
        wanted = slice(None) if rows is None else rows
        if self.format == F32 and out is None:
            return self.packed[wanted].view(torch.float32)
        if self.format.side > 1:
            return self._restore_sets(torch.arange(self.shape[0])[wanted], out)
        packed, columns = self.packed[wanted], self.shape[1]
        if out is None:
            out = torch.empty(len(packed), columns)
        step = max(1, CHUNK // columns)
        for first in range(0, len(packed), step):
            self._unpack(packed[first : first + step], out[first : first + step])
        return out

    def _unpack(self, packed: Tensor, out: Tensor) -> None:
        block, block_bytes = self.format.block, self.format.block_bytes
        blocks = packed.view(-1, block_bytes)
        if self.shape[1] % block == 0:
            UNPACK[self.format](blocks, out.view(-1, block))
        else:
            whole = torch.empty(len(blocks), block)
            UNPACK[self.format](blocks, whole)
            out.copy_(whole.view(len(packed), -1)[:, : self.shape[1]])

    def _restore_sets(self, rows: Tensor, out: Tensor | None) -> Tensor:
        """Rows that lie side by side with others: a whole set becomes float32 for one of them."""
        side, columns = self.format.side, self.shape[1]
        width = -(-columns // self.format.block) * self.format.block
        if out is None:
            out = torch.empty(len(rows), columns)
        sets, which = torch.unique_consecutive(rows // side, return_inverse=True)
        step = max(1, CHUNK // (columns * side))
        for first in range(0, len(sets), step):
            some = sets[first : first + step]
            numbers = torch.empty(len(some) * side, width)
            UNPACK[self.format](self.packed[some], numbers)
            here = (first <= which) & (which < first + step)
            out[here] = numbers[(which[here] - first) * side + rows[here] % side, :columns]
        return out
