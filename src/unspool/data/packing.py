"""Packing: blocks of equal length from concatenated texts, without padding.

    stream   BOS y₁ … yₘ EOS BOS y₁ … EOS …
    block b  inputs stream[o + bL … o + (b + 1)L − 1], targets one later;  L = length, o random in every epoch

Texts may begin and end inside a block; a block begins with BOS only if a text begins there. BOS after EOS
has weight 0 as a target.

In conversations only tokens of answers have weight 1. Blocks without a target are left out; this requires the
same block boundaries in every epoch (o = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unspool.data.batch import Batch
from unspool.data.random_numbers import Ints, random_below, random_permutation

_OFFSET, _BLOCKS = 0, 1
"""Purposes of random numbers: those of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class PackFeed:
    """An endless sequence of batches of blocks in random order; each is a pure function of its number."""

    stream: npt.NDArray[Any]
    """All tokens concatenated; may be a memory-mapped file."""
    rows: int
    """Blocks in a batch; the last batch of an epoch may have fewer."""
    length: int
    """Tokens in a block."""
    seed: int = 0
    ends: tuple[int, int] | None = None
    """BOS and EOS, if the stream has them."""
    counts: npt.NDArray[Any] | None = None
    """1 for each token that is a target; None: all except BOS after EOS."""

    _target_starts: Ints | None = field(init=False, repr=False, default=None)
    """Starts of the blocks with targets, if `counts` is given."""
    _cached_epoch: dict[int, Ints] = field(init=False, repr=False, default_factory=dict)
    """Cache of the last epoch used."""

    def __post_init__(self) -> None:
        _check_stream(len(self.stream), 1 if self.counts is not None else self.length)
        if self.counts is None:
            return
        starts = np.arange(0, len(self.stream) - 1, self.length)
        with_targets = starts[np.add.reduceat(self.counts[1:] > 0, starts) > 0]
        if not len(with_targets):
            raise ValueError("the data has no targets: conversations need answers")
        object.__setattr__(self, "_target_starts", with_targets)

    @property
    def blocks(self) -> int:
        """Blocks in an epoch: as many as fit with any offset, or as have targets."""
        return (
            max(1, len(self.stream) // self.length - 1)
            if self._target_starts is None
            else len(self._target_starts)
        )

    @property
    def per_epoch(self) -> int:
        return -(-self.blocks // self.rows)

    def batch(self, number: int) -> Batch:
        epoch, at = divmod(number, self.per_epoch)
        starts_N = self._epoch(epoch)[at * self.rows : (at + 1) * self.rows]
        stops_N = np.minimum(starts_N + self.length, len(self.stream) - 1)
        return batch_of_blocks(self.stream, starts_N, stops_N, self.ends, self.counts)

    def _epoch(self, epoch: int) -> Ints:
        """Return the start of each block, shuffled."""
        starts = self._cached_epoch.get(epoch)
        if starts is None:
            order = random_permutation(self.blocks, self.seed, epoch, _BLOCKS)
            if self._target_starts is not None:
                starts = self._target_starts[order]
            else:
                spare = len(self.stream) - 1 - self.blocks * self.length
                starts = random_below(spare + 1, self.seed, epoch, _OFFSET) + order * self.length
            self._cached_epoch.clear()
            self._cached_epoch[epoch] = starts
        return starts


def stream_batches(
    stream: npt.NDArray[Any],
    rows: int,
    length: int,
    ends: tuple[int, int] | None = None,
    counts: npt.NDArray[Any] | None = None,
) -> list[Batch]:
    """Return batches in which every token except the first is a target once, in order."""
    _check_stream(len(stream), 1)
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
    """Return a row for each block stream[start … stop − 1] with shifted targets, padded on the right."""
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


def _check_stream(tokens: int, length: int) -> None:
    if tokens < length + 1:
        raise ValueError(
            f"the text has {tokens} tokens, fewer than one block of {length} and its next token: "
            "give more text or a smaller length"
        )
