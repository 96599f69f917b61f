"""Token ids → rows to learn from, for language models and encoder–decoders.

language model     inputs  BOS y₁ … yₘ      targets  y₁ … yₘ EOS
encoder–decoder    the same, and            source   x₁ … xₙ EOS

Without BOS (a pretrained model whose prompts have none), inputs are y₁ … yₘ and targets y₂ … yₘ EOS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from unspool.data.batch import Batch
from unspool.data.ragged import Ragged
from unspool.data.random_orders import Ints


class Examples(Protocol):
    """Rows that can be batched in any order."""

    def __len__(self) -> int: ...

    @property
    def sizes_NK(self) -> Ints:
        """How many positions each row has on each of its sides (one, or source and target)."""
        ...

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        ...

    def cut(self, limit: int) -> Self:
        """The same rows with at most `limit` positions on each side."""
        ...


@dataclass(frozen=True, eq=False)
class Sequences:
    """Texts, or texts with a source: each is stored from what precedes its first target to its EOS."""

    target: Ragged
    source: Ragged | None = None
    limit: int | None = None
    """The most positions of a row. A cut target has no EOS, for it does not end there; a source keeps it."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def sizes_NK(self) -> Ints:
        """Positions of source and target, or of the target alone."""
        sides = [self.target] if self.source is None else [self.source, self.target]
        sizes_NK = np.stack([side.lengths - 1 for side in sides], axis=1)
        return sizes_NK if self.limit is None else np.minimum(sizes_NK, self.limit)

    @property
    def target_counts(self) -> npt.NDArray[Any] | None:
        """For each token of all targets, whether it counts; None: every one does."""
        return None

    def cut(self, limit: int) -> Self:
        """The same rows with at most `limit` positions on each side."""
        return replace(self, limit=limit)

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        lengths_N = self._lengths(self.target, rows_N)
        inputs_NT = torch.from_numpy(self.target.padded(rows_N, lengths_N))
        targets_NT = torch.from_numpy(self.target.padded(rows_N, lengths_N, skip=1))
        weights_NT = real(lengths_N).float()
        lengths = torch.from_numpy(lengths_N)
        if self.source is None:
            return Batch(inputs_NT, lengths, targets_NT, weights_NT)
        source_lengths_N = self._lengths(self.source, rows_N)
        source_NS = self.source.padded(rows_N, source_lengths_N, skip=1)
        ends_N = self.source.offsets[rows_N + 1] - 1
        source_NS[np.arange(len(rows_N)), source_lengths_N - 1] = self.source.values[ends_N]
        return Batch(
            inputs_NT,
            lengths,
            targets_NT,
            weights_NT,
            torch.from_numpy(source_NS),
            torch.from_numpy(source_lengths_N),
        )

    def _lengths(self, side: Ragged, rows_N: Ints) -> Ints:
        lengths_N = side.offsets[rows_N + 1] - side.offsets[rows_N] - 1
        return lengths_N if self.limit is None else np.minimum(lengths_N, self.limit)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Some of the examples."""

    all: Examples
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes_NK(self) -> Ints:
        """Positions on each side."""
        return self.all.sizes_NK[self.rows]

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        return self.all.batch(self.rows[rows_N])

    def cut(self, limit: int) -> Chosen:
        """The same rows with at most `limit` positions on each side."""
        return replace(self, all=self.all.cut(limit))


def real(lengths_N: Ints) -> torch.Tensor:
    """(N, T): True where a position is no padding."""
    lengths = torch.from_numpy(lengths_N)
    return torch.arange(int(lengths_N.max(initial=0))) < lengths[:, None]
