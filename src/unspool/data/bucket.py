"""Batches of rows that are about equally long, so that little is padding; shuffled anew in every epoch.

    rows × longest row ≤ tokens

Rows are sorted by their rounded-up lengths, and rows that are alike in these are shuffled. The lengths then
read the same in every epoch, and so the cuts between batches, and their number, stay where they are. What a
batch holds, and when it comes, is a function of (seed, epoch) alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np

from unspool.data.batch import Batch
from unspool.data.examples import Examples
from unspool.data.random_orders import Ints, bits, shuffled

_ROWS, _BATCHES = 0, 1
"""What a random order is for: two of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class BucketFeed:
    """Batches without end, each a pure function of its number."""

    examples: Examples
    tokens: int
    """The most positions in a batch, padding included: rows × longest row, on the longer side."""
    seed: int = 0
    _ranks_N: Ints = field(init=False, repr=False)
    _cuts: Ints = field(init=False, repr=False)
    _known: dict[int, tuple[Ints, Ints]] = field(init=False, repr=False, default_factory=dict)
    """The last epoch that was asked for: kept because it is slow to make, not because it must be."""

    carries: ClassVar[bool] = False
    """Every batch stands for itself."""

    def __post_init__(self) -> None:
        ranks_N, widths_N = _ranked(self.examples, self.tokens)
        object.__setattr__(self, "_ranks_N", ranks_N)
        object.__setattr__(self, "_cuts", cuts(np.sort(widths_N), self.tokens))

    @property
    def per_epoch(self) -> int:
        """Batches in one pass over the examples."""
        return len(self._cuts) - 1

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over all epochs."""
        if number < 0:
            raise ValueError(f"batch {number}: batches are counted from 0")
        epoch, at = divmod(number, self.per_epoch)
        rows_N, order = self._epoch(epoch)
        which = order[at]
        return self.examples.batch(rows_N[self._cuts[which] : self._cuts[which + 1]])

    def _epoch(self, epoch: int) -> tuple[Ints, Ints]:
        """All rows, sorted and shuffled; and the order of the batches."""
        known = self._known.get(epoch)
        if known is None:
            rows_N = np.argsort(_mixed(self._ranks_N, self.seed, epoch, _ROWS), kind="stable")
            known = rows_N, shuffled(self.per_epoch, self.seed, epoch, _BATCHES)
            self._known.clear()
            self._known[epoch] = known
        return known


def whole(examples: Examples, tokens: int) -> list[Batch]:
    """Every example once, short ones first; always the same."""
    ranks_N, widths_N = _ranked(examples, tokens)
    rows_N = np.argsort(ranks_N, kind="stable")
    ends = cuts(np.sort(widths_N), tokens)
    return [examples.batch(rows_N[start:end]) for start, end in pairwise(ends)]


def cuts(widths_N: Ints, tokens: int) -> Ints:
    """Where batches begin, and where the last one ends: each as large as `tokens` allows; widths ascend."""
    found = [0]
    while (start := found[-1]) < len(widths_N):
        most = max(1, tokens // int(widths_N[start]))
        ahead = widths_N[start : start + most]
        padded = ahead * np.arange(1, len(ahead) + 1)
        found.append(start + max(1, int(np.searchsorted(padded, tokens, side="right"))))
    return np.array(found, dtype=np.int64)


def rounded(sizes: Ints) -> Ints:
    """Rounded up to multiples of about an eighth: 1, 2, … 16, 18, … 32, 36, …"""
    steps: Ints = 2 ** np.maximum(0, np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64) - 4)
    up: Ints = -(-sizes // steps) * steps
    return up


def _ranked(examples: Examples, tokens: int) -> tuple[Ints, Ints]:
    """For each row, its place among all different sizes, and the width that a batch reserves for it."""
    sizes_NK = examples.sizes_NK
    longest = int(sizes_NK.max(initial=0))
    if longest > tokens:
        row = int(sizes_NK.max(axis=1).argmax())
        raise ValueError(
            f"example {row + 1} has {longest} tokens, more than the {tokens} of a whole batch: raise tokens, "
            'or set max_length with long = "cut" or "drop"'
        )
    widths_N = np.minimum(rounded(sizes_NK.max(axis=1)), tokens)
    keys_N = widths_N
    for side in rounded(sizes_NK).T:
        keys_N = keys_N * (2 * longest + 1) + side
    _, ranks_N = np.unique(keys_N, return_inverse=True)
    return ranks_N, widths_N


def _mixed(ranks_N: Ints, *seed: int) -> Ints:
    """The ranks, with random lower bits: rows of equal rank fall in a random order."""
    return (ranks_N << 32) | (bits(len(ranks_N), *seed) >> np.uint64(32)).astype(np.int64)
