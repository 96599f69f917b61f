"""Blocks in the order of the text, for a model that carries what it remembers from block to block.

    lane r    stream[o + rTL … o + (r + 1)TL],   T = blocks of a lane, L = length, o drawn anew in every epoch
    batch t   block t of every lane: it goes on where batch t − 1 ended

What is remembered at the end of a block is the beginning of the next one, but no gradient passes between
them: truncated backpropagation through time, Williams & Peng 1990 (papers.bib: williams1990efficient). Where
an update adds up A batches, each of the A has lanes of its own, and batch n goes on with batch n − A: several
processes can share an update out. The first batches of an epoch go on with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from unspool.data.batch import Batch
from unspool.data.pack import blocks_batch
from unspool.data.random_orders import below


@dataclass(frozen=True, eq=False)
class LaneFeed:
    """Batches without end, each a pure function of its number; what a model remembers is not in them."""

    stream: npt.NDArray[Any]
    """All tokens, end to end; it may be a mapped file."""
    rows: int
    """Lanes of a batch."""
    length: int
    """Tokens in a block."""
    seed: int = 0
    ends: tuple[int, int] | None = None
    """BOS and EOS, where the stream has them."""
    counts: npt.NDArray[Any] | None = None
    """For each token of the stream, whether it counts as a target; None: all but BOS."""
    apart: int = 1
    """A: the batches of one update, which have lanes of their own."""

    carries: ClassVar[bool] = True
    """Its batches are for a model that carries what it remembers."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.length < 1 or self.apart < 1:
            raise ValueError(
                f"rows is {self.rows}, length is {self.length} and apart is {self.apart}; each must be 1 or "
                "more"
            )
        if self.blocks < 1:
            raise ValueError(
                f"the text has {len(self.stream)} tokens, fewer than one block of {self.length} and its next "
                f"token for each of {self.rows * self.apart} lanes: give more text, fewer rows or a smaller "
                "length"
            )

    @property
    def blocks(self) -> int:
        """T: blocks in a lane."""
        return (len(self.stream) - 1) // (self.rows * self.apart) // self.length

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the stream."""
        return self.blocks * self.apart

    def side_by_side(self, apart: int) -> LaneFeed:
        """The same stream, laid out for updates of so many batches."""
        return replace(self, apart=apart)

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over all epochs."""
        if number < 0:
            raise ValueError(f"batch {number}: batches are counted from 0")
        epoch, at = divmod(number, self.per_epoch)
        block, which = divmod(at, self.apart)
        lane = self.blocks * self.length
        spare = len(self.stream) - 1 - self.rows * self.apart * lane
        first = below(spare + 1, self.seed, epoch) + which * self.rows * lane + block * self.length
        starts_N = first + np.arange(self.rows, dtype=np.int64) * lane
        batch = blocks_batch(self.stream, starts_N, starts_N + self.length, self.ends, self.counts)
        return replace(batch, follows=number - self.apart if block else None)


def whole_lanes(
    stream: npt.NDArray[Any],
    rows: int,
    length: int,
    ends: tuple[int, int] | None = None,
    counts: npt.NDArray[Any] | None = None,
) -> list[Batch]:
    """Every token of the stream once as a target (but the first): batch i goes on with batch i − 1."""
    targets = len(stream) - 1
    lane = -(-targets // rows)
    starts_N = np.arange(rows, dtype=np.int64) * lane
    stops_N = np.minimum(starts_N + lane, targets)
    found: list[Batch] = []
    for at in range(0, lane, length):
        until_N = np.minimum(starts_N + at + length, stops_N)
        batch = blocks_batch(stream, np.minimum(starts_N + at, until_N), until_N, ends, counts)
        found.append(replace(batch, follows=len(found) - 1 if found else None))
    return found
