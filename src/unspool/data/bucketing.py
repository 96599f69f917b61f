"""Length bucketing: batches of rows of similar length, with little padding, reshuffled in every epoch.

    rows × longest row ≤ tokens

Rows are sorted by rounded-up length, and rows of equal rounded length are shuffled. The sequence of lengths
is the same in every epoch, and so are the boundaries and the number of batches. The content and the order
of batches depend only on (seed, epoch).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from unspool.data.batch import Batch
from unspool.data.examples import Examples
from unspool.data.random_numbers import Ints, random_bits, random_permutation

_ROWS, _BATCHES = 0, 1
"""Purposes of random orders: those of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class BucketFeed:
    """An endless sequence of batches; each is a pure function of its number."""

    examples: Examples
    tokens: int
    """Maximum positions in a batch, padding included: rows × longest row, on the longer side."""
    seed: int = 0
    _ranks_N: Ints = field(init=False, repr=False)
    _cuts: Ints = field(init=False, repr=False)
    _cached_epoch: dict[int, tuple[Ints, Ints]] = field(init=False, repr=False, default_factory=dict)
    """Cache of the last epoch used."""

    def __post_init__(self) -> None:
        ranks_N, widths_N = _rank_by_length(self.examples, self.tokens)
        object.__setattr__(self, "_ranks_N", ranks_N)
        object.__setattr__(self, "_cuts", batch_boundaries(np.sort(widths_N), self.tokens))

    @property
    def per_epoch(self) -> int:
        return len(self._cuts) - 1

    def batch(self, number: int) -> Batch:
        epoch, at = divmod(number, self.per_epoch)
        rows_N, order = self._epoch(epoch)
        which = order[at]
        return self.examples.batch(rows_N[self._cuts[which] : self._cuts[which + 1]])

    def _epoch(self, epoch: int) -> tuple[Ints, Ints]:
        """Return all rows, sorted and shuffled, and the order of the batches."""
        if epoch not in self._cached_epoch:
            # Random lower bits put rows of equal rank in random order.
            bits = random_bits(len(self._ranks_N), self.seed, epoch, _ROWS)
            keys_N = (self._ranks_N << 32) | (bits >> np.uint64(32)).astype(np.int64)
            rows_N = np.argsort(keys_N, kind="stable")
            self._cached_epoch.clear()
            order = random_permutation(self.per_epoch, self.seed, epoch, _BATCHES)
            self._cached_epoch[epoch] = rows_N, order
        return self._cached_epoch[epoch]


def bucketed_batches(examples: Examples, tokens: int) -> list[Batch]:
    """Return batches with every example once, short ones first."""
    ranks_N, widths_N = _rank_by_length(examples, tokens)
    rows_N = np.argsort(ranks_N, kind="stable")
    ends = batch_boundaries(np.sort(widths_N), tokens)
    return [examples.batch(rows_N[start:end]) for start, end in pairwise(ends)]


def batch_boundaries(widths_N: Ints, tokens: int) -> Ints:
    """Return the start of each batch and the end of the last; each is as large as `tokens` allows."""
    boundaries = [0]
    while (start := boundaries[-1]) < len(widths_N):
        max_rows = max(1, tokens // int(widths_N[start]))
        widths = widths_N[start : start + max_rows]
        padded = widths * np.arange(1, len(widths) + 1)
        boundaries.append(start + max(1, int(np.searchsorted(padded, tokens, side="right"))))
    return np.array(boundaries, dtype=np.int64)


def round_up_lengths(sizes: Ints) -> Ints:
    """Round lengths up in steps of about an eighth: 1, 2, … 16, 18, … 32, 36, …"""
    steps: Ints = 2 ** np.maximum(0, np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64) - 4)
    up: Ints = -(-sizes // steps) * steps
    return up


def _rank_by_length(examples: Examples, tokens: int) -> tuple[Ints, Ints]:
    """Return for each row its rank among all sizes, and the width that a batch reserves for it."""
    sizes_NK = examples.sizes_NK
    longest = int(sizes_NK.max(initial=0))
    if longest > tokens:
        row = int(sizes_NK.max(axis=1).argmax())
        raise ValueError(
            f"example {row + 1} has {longest} tokens, but a batch holds {tokens}: raise tokens, "
            'or set max_length with long = "cut" or "drop"'
        )
    widths_N = np.minimum(round_up_lengths(sizes_NK.max(axis=1)), tokens)
    keys_N = widths_N
    for side in round_up_lengths(sizes_NK).T:
        keys_N = keys_N * (2 * longest + 1) + side
    _, ranks_N = np.unique(keys_N, return_inverse=True)
    return ranks_N, widths_N
