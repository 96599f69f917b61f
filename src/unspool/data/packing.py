"""Blocks of equal length from one long stream: texts end to end, nothing padded.

    stream   BOS y₁ … yₘ EOS BOS y₁ … EOS …
    block    inputs  stream[o + bL …], targets  one further on;  L = length, o drawn anew in every epoch

A text may begin in the middle of a block and end in another one. A block begins with the token that stands
there, and so with BOS only if a text begins there. That BOS follows EOS is nothing to learn: as a target it
has weight 0.

Of conversations, only tokens of answers have weight 1, as in batches of whole rows. Blocks without any are
left out, so that every batch has something to learn; to that end their cuts stay the same (o = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from unspool.data.batch import Batch
from unspool.data.split import Ints, random_below, random_permutation

_OFFSET, _BLOCKS = 0, 1
"""What a random number is for: two of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class PackFeed:
    """Batches without end, each a pure function of its number."""

    stream: npt.NDArray[Any]
    """All tokens, end to end; it may be a mapped file."""
    rows: int
    """Blocks in a batch; the last batch of an epoch may have fewer."""
    length: int
    """Tokens in a block."""
    seed: int = 0
    ends: tuple[int, int] | None = None
    """BOS and EOS, where the stream has them."""
    counts: npt.NDArray[Any] | None = None
    """For each token of the stream, whether it counts as a target; None: all but BOS."""
    _answered: Ints | None = field(init=False, repr=False, default=None)
    """Where blocks with targets begin, if `counts` says which tokens are."""
    _known: dict[int, Ints] = field(init=False, repr=False, default_factory=dict)
    """The last epoch that was asked for: kept because it is slow to make, not because it must be."""

    carries: ClassVar[bool] = False
    """Every batch stands for itself."""

    def __post_init__(self) -> None:
        _check_stream(len(self.stream), self.rows, 1 if self.counts is not None else self.length)
        if self.counts is None:
            return
        starts = np.arange(0, len(self.stream) - 1, self.length)
        found = starts[np.add.reduceat(self.counts[1:] > 0, starts) > 0]
        if not len(found):
            raise ValueError("no token of the data counts as a target: conversations need answers")
        object.__setattr__(self, "_answered", found)

    @property
    def blocks(self) -> int:
        """Blocks in one epoch: as many as fit whatever the offset, or as have targets."""
        return max(1, len(self.stream) // self.length - 1) if self._answered is None else len(self._answered)

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the stream."""
        return -(-self.blocks // self.rows)

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over all epochs."""
        if number < 0:
            raise ValueError(f"batch {number}: batches are counted from 0")
        epoch, at = divmod(number, self.per_epoch)
        starts_N = self._epoch(epoch)[at * self.rows : (at + 1) * self.rows]
        stops_N = np.minimum(starts_N + self.length, len(self.stream) - 1)
        return batch_of_blocks(self.stream, starts_N, stops_N, self.ends, self.counts)

    def _epoch(self, epoch: int) -> Ints:
        """Where each block begins, shuffled."""
        known = self._known.get(epoch)
        if known is None:
            order = random_permutation(self.blocks, self.seed, epoch, _BLOCKS)
            if self._answered is not None:
                known = self._answered[order]
            else:
                spare = len(self.stream) - 1 - self.blocks * self.length
                known = random_below(spare + 1, self.seed, epoch, _OFFSET) + order * self.length
            self._known.clear()
            self._known[epoch] = known
        return known


def stream_batches(
    stream: npt.NDArray[Any],
    rows: int,
    length: int,
    ends: tuple[int, int] | None = None,
    counts: npt.NDArray[Any] | None = None,
) -> list[Batch]:
    """Every token of the stream once as a target (but the first, which nothing comes before), in order."""
    _check_stream(len(stream), rows, 1)
    starts = np.arange(0, len(stream) - 1, length)
    stops = np.minimum(starts + length, len(stream) - 1)
    return [
        batch_of_blocks(stream, starts[at : at + rows], stops[at : at + rows], ends, counts)
        for at in range(0, len(starts), rows)
    ]


def batch_of_blocks(
    stream: npt.NDArray[Any],
    starts_N: Ints,
    stops_N: Ints,
    ends: tuple[int, int] | None,
    counts: npt.NDArray[Any] | None = None,
) -> Batch:
    """A row for each block stream[start … stop − 1], its targets one further on; padded on the right."""
    lengths_N = stops_N - starts_N
    times_T = np.arange(int(lengths_N.max()))
    real_NT = times_T < lengths_N[:, None]
    places_NT = np.where(real_NT, starts_N[:, None] + times_T, 0)
    inputs_NT = np.where(real_NT, stream[places_NT], 0).astype(np.int64)
    targets_NT = np.where(real_NT, stream[places_NT + 1], 0).astype(np.int64)
    counted_NT = real_NT
    if counts is not None:
        counted_NT = real_NT & (counts[places_NT + 1] > 0)
    elif ends is not None:
        bos, eos = ends
        counted_NT = real_NT & ~((inputs_NT == eos) & (targets_NT == bos))
    return Batch(
        torch.from_numpy(inputs_NT),
        torch.from_numpy(lengths_N),
        torch.from_numpy(targets_NT),
        torch.from_numpy(counted_NT.astype(np.float32)),
    )


def _check_stream(tokens: int, rows: int, length: int) -> None:
    if rows < 1 or length < 1:
        raise ValueError(f"rows is {rows} and length is {length}; both must be 1 or more")
    if tokens < length + 1:
        raise ValueError(
            f"the text has {tokens} tokens, fewer than one block of {length} and its next token: "
            "give more text or a smaller length"
        )


@dataclass(frozen=True, eq=False)
class CarriedFeed:
    """Batches without end, each a pure function of its number; what a model remembers is not in them.

    Blocks in the order of the text, for a model that carries what it remembers from block to block.

        lane r  stream[o + rTL … o + (r + 1)TL],  T blocks a lane, L = length, o drawn anew in every epoch
        batch t   block t of every lane: it goes on where batch t − 1 ended

    What is remembered at the end of a block is the beginning of the next one, but no gradient passes between
    them: truncated backpropagation through time, Williams & Peng 1990 (papers.bib: williams1990efficient).
    Where an update adds up A batches, each of the A has lanes of its own, and batch n goes on with batch n −
    A: several processes can share an update out. The first batches of an epoch go on with nothing.
    """

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

    def side_by_side(self, apart: int) -> CarriedFeed:
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
        first = random_below(spare + 1, self.seed, epoch) + which * self.rows * lane + block * self.length
        starts_N = first + np.arange(self.rows, dtype=np.int64) * lane
        batch = batch_of_blocks(self.stream, starts_N, starts_N + self.length, self.ends, self.counts)
        return replace(batch, follows=number - self.apart if block else None)


def carried_batches(
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
        batch = batch_of_blocks(stream, np.minimum(starts_N + at, until_N), until_N, ends, counts)
        found.append(replace(batch, follows=len(found) - 1 if found else None))
    return found
