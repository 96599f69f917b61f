"""Batch: padded training rows as tensors; Ragged: rows of different lengths in one array."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unspool.data.random_numbers import Ints, random_uniforms

if TYPE_CHECKING:
    from torch import Tensor


class RandomStream(IntEnum):
    """Purposes of a row's random numbers; each has an independent stream."""

    ROOM = 0
    """The number of EOS after a text (masked language models)."""
    MASK_RATE = 1
    MASKED = 2
    OWN_TOKENS = 3
    """Which tokens of a row are sampled from the model (scheduled sampling)."""
    TOKEN = 4
    """The sampled token."""


def _unpadded(rows_NT: Tensor, lengths_N: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(rows_NT.tolist(), lengths_N.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class Batch:
    """Training rows, padded on the right; padding has weight 0."""

    inputs_NT: Tensor
    """The model's input (for a language model the result of `Tokenizer.encode`: BOS and every token)."""
    lengths_N: Tensor
    """Inputs of each row without padding."""
    targets_NU: Tensor
    """Targets: U = T for a language model or a tagger, U = 1 for a classifier."""
    weights_NU: Tensor
    """Weight of each target: 0 for padding."""
    source_NS: Tensor | None = None
    """Input of the encoder of an encoder–decoder."""
    source_lengths_N: Tensor | None = None
    seeds_N: Tensor | None = None
    """Seeds of each row's random numbers, so that they do not depend on the rest of the batch. Without seeds,
    torch's generator is used."""

    @property
    def weight(self) -> float:
        return float(self.weights_NU.sum())

    def sources(self) -> list[list[int]]:
        """The source of each row without padding; empty lists for a language model."""
        if self.source_NS is None or self.source_lengths_N is None:
            return [[] for _ in self.lengths_N]
        return _unpadded(self.source_NS, self.source_lengths_N)

    def targets(self) -> list[list[int]]:
        """The targets of each row without padding."""
        return _unpadded(self.targets_NU, self.lengths_N)

    def uniform(self, columns: int, draw: RandomStream) -> Tensor:
        """Return (N, columns) random numbers in [0, 1), from the rows' seeds if there are any."""
        import torch

        if self.seeds_N is None:
            uniform_NC = torch.rand(len(self.lengths_N), columns)
        else:
            seeds_N = self.seeds_N.cpu().numpy().astype(np.uint64)
            # Rounded down: 1 − 2⁻⁵³ would be 1.0 in float32.
            uniform_NC = (
                torch.from_numpy(random_uniforms(seeds_N, columns, draw)).mul(1 << 24).floor().float()
            )
            uniform_NC = uniform_NC / (1 << 24)
        return uniform_NC.to(self.inputs_NT.device)

    def to(self, device: Any) -> Batch:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{name: tensor.to(device) for name, tensor in tensors.items() if tensor is not None}
        )


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of token ids or labels, concatenated in one array in memory or in a memory-mapped file.

    row i = values[offsets[i] : offsets[i + 1]]
    """

    values: npt.NDArray[Any]
    """All rows concatenated; uint16 or uint32."""
    offsets: Ints
    """Start of each row, and the end of the last one."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return np.asarray(self.values[self.offsets[row] : self.offsets[row + 1]], dtype=np.int64)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def row_lengths(self, rows_N: Ints) -> Ints:
        return self.offsets[rows_N + 1] - self.offsets[rows_N]

    def padded(self, rows_N: Ints, lengths_N: Ints, skip: int = 0) -> Ints:
        """Return (N, T): `lengths_N` values of each row from position `skip` on, padded with 0."""
        times_T = np.arange(int(lengths_N.max(initial=0)))
        real_NT = times_T < lengths_N[:, None]
        places_NT = np.where(real_NT, self.offsets[rows_N][:, None] + skip + times_T, 0)
        return np.where(real_NT, self.values[places_NT], 0).astype(np.int64)


def ragged_from_lists(rows: list[list[int]]) -> Ragged:
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return Ragged(np.fromiter((value for row in rows for value in row), dtype=np.uint32), offsets)
