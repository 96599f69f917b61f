"""Rows to learn from, side by side."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unspool.data.split import Ints, random_uniforms

if TYPE_CHECKING:
    from torch import Tensor


class RandomStream(IntEnum):
    """What a row draws random numbers for: each purpose has a stream of its own."""

    ROOM = 0
    """How many EOS stand behind a text (masked language models)."""
    MASK_RATE = 1
    MASKED = 2
    OWN_TOKENS = 3
    """Which tokens of a row are the model's own (scheduled sampling)."""
    TOKEN = 4
    """Which token the model says there."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to learn from. Rows are padded on the right; padding has weight 0."""

    inputs_NT: Tensor
    """What the model reads (a language model: what `Tokenizer.encode` gives, so BOS and every token)."""
    lengths_N: Tensor
    """How many of a row's inputs are real."""
    targets_NU: Tensor
    """What it should say: U = T for a language model or a tagger, U = 1 for a classifier."""
    weights_NU: Tensor
    """How much each target counts: 0 for padding."""
    source_NS: Tensor | None = None
    """What the encoder of an encoder–decoder reads."""
    source_lengths_N: Tensor | None = None
    follows: int | None = None
    """The number of the batch whose rows these rows go on with, where a model carries what it remembers."""
    begin_NLS: Tensor | None = None
    """What it remembered at the end of that batch."""
    seeds_N: Tensor | None = None
    """Seeds of what objectives draw for each row, so that no draw depends on the other rows of the batch. If
    there are none, torch's generator is used."""

    @property
    def weight(self) -> float:
        """How many targets count, all in all."""
        return float(self.weights_NU.sum())

    def uniform(self, columns: int, draw: RandomStream) -> Tensor:
        """(N, columns) random numbers of [0, 1), from the rows' own seeds if they have any."""
        import torch

        if self.seeds_N is None:
            found_NC = torch.rand(len(self.lengths_N), columns)
        else:
            seeds_N = self.seeds_N.cpu().numpy().astype(np.uint64)
            # Rounded down: 1 − 2⁻⁵³ would be 1.0 in float32.
            found_NC = torch.from_numpy(random_uniforms(seeds_N, columns, draw)).mul(1 << 24).floor().float()
            found_NC = found_NC / (1 << 24)
        return found_NC.to(self.inputs_NT.device)

    def to(self, device: Any) -> Batch:
        """The same on another device."""
        found = {it.name: getattr(self, it.name) for it in fields(self)}
        return Batch(**{name: it.to(device) if hasattr(it, "to") else it for name, it in found.items()})


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of token ids (or labels).

    Rows of different lengths, end to end in one array: in memory, or in a file that is only mapped.

    row i = values[offsets[i] : offsets[i + 1]]
    """

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


def ragged_from_lists(rows: list[list[int]]) -> Ragged:
    """Rows that are in memory already."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Ragged(np.fromiter((it for row in rows for it in row), dtype=np.uint32), offsets)
