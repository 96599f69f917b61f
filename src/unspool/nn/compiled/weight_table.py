"""The weights of a model as a compiled step finds them: the table of `parts`, filled part by part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from unspool.nn.compiled.parts import (
    BIAS,
    END,
    FIELDS,
    FORMAT,
    FUNCTION,
    INPUTS,
    OUTPUTS,
    PARTS,
    PIECE,
    PIECES,
    WEIGHT,
)
from unspool.nn.compiled.products.int8 import RECORD
from unspool.nn.compiled.products.int8_tiles import GROUP
from unspool.nn.compiled.products.packed_product import HALVES, MADE, compiled
from unspool.nn.stored.formats import BF16, F16, F32, NUMBER_INT8, Format
from unspool.nn.stored.weight import StoredWeight


class Weights:
    """The table of `parts`, filled part by part; it keeps the tensors whose addresses it holds."""

    def __init__(self, layers: int, readers: int = 0) -> None:
        self.table = np.zeros((layers + 1 + readers, PARTS, FIELDS), np.int64)
        self.size = 0
        """Weights that a row is multiplied with."""
        self._held: list[Tensor] = []

    def put(self, layer: int, part: int, weight: Tensor, bias: Tensor | None = None) -> None:
        """A matrix (outputs, inputs) or a norm's gain, with its bias, in float32."""
        rows, columns = weight.shape if weight.dim() == 2 else (1, len(weight))
        self._put(layer, part, [(F32, weight, rows)], columns, bias)

    def put_stored(
        self, layer: int, part: int, pieces: Sequence[StoredWeight], bias: Tensor | None = None
    ) -> None:
        """A matrix that is stacked of stored ones."""
        stacked = [_multiplied(piece) for piece in pieces]
        self._put(layer, part, stacked, pieces[0].shape[1], bias)

    def ready_words(self) -> int:
        """Numbers that a row of the widest product's inputs takes when it is ready for whole numbers."""
        formats = self.table[:, :, [at + FORMAT for at in range(0, PIECE * PIECES, PIECE)]]
        wanting = (formats == NUMBER_INT8).any(axis=-1)
        widest = int(self.table[:, :, INPUTS][wanting].max(initial=0))
        return -(-widest // GROUP) * RECORD

    def _put(
        self,
        layer: int,
        part: int,
        stacked: Sequence[tuple[Format, Tensor, int]],
        inputs: int,
        bias: Tensor | None,
    ) -> None:
        row, end = self.table[layer, part], 0
        for at in range(0, PIECE * PIECES, PIECE):
            if at // PIECE < len(stacked):
                kind, memory, rows = stacked[at // PIECE]
                end += rows
                row[at + FORMAT], row[at + WEIGHT] = kind.number, self._address(memory)
                row[at + FUNCTION] = compiled(kind).address if kind in MADE else 0
            row[at + END] = end
        row[OUTPUTS], row[INPUTS] = end, inputs
        row[BIAS] = 0 if bias is None else self._address(bias)
        self.size += end * inputs

    def _address(self, tensor: Tensor) -> int:
        kept = tensor.detach()
        self._held.append(kept)
        return kept.data_ptr()


def _multiplied(weight: StoredWeight) -> tuple[Format, Tensor, int]:
    """Format, memory and rows of what a kernel multiplies in place of a stored weight."""
    rows, columns = weight.shape
    whole = weight.format in (F16, BF16) and columns % HALVES == 0
    if weight.format.block > 1 or whole:
        return weight.format, weight.packed, rows
    return F32, weight.restore(), rows
