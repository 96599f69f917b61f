"""Layout of batches: rows bucketed by length, or blocks packed from one stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from unspool.arguments import Checked, integer
from unspool.data.batch import Batch
from unspool.data.examples import Examples, SelectedExamples, Sequences
from unspool.data.random_numbers import Ints, random_below, random_bits, random_permutation
from unspool.interfaces import Feed

_ROWS, _BATCHES = 0, 1
"""Purposes of random orders: those of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class BucketFeed:
    """Length bucketing: batches of rows of similar length, with little padding, reshuffled in every epoch.

        rows × longest row ≤ tokens

    Rows are sorted by rounded-up length, and rows of equal rounded length are shuffled. The sequence of
    lengths, the boundaries and the number of batches are the same in every epoch. The content and the order
    of batches depend only on (seed, epoch): each batch is a pure function of its number.
    """

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
    return -(-sizes // steps) * steps


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


_OFFSET, _BLOCKS = 0, 1
"""Purposes of random numbers: those of one epoch must differ."""


@dataclass(frozen=True, eq=False)
class PackFeed:
    """Packing: blocks of equal length from concatenated texts in random order, without padding.

        stream   BOS y₁ … yₘ EOS BOS y₁ … EOS …
        block b  inputs stream[o + bL … o + (b + 1)L − 1], targets one later;  L = length, o random per epoch

    Texts may begin and end inside a block; a block begins with BOS only if a text begins there. BOS after EOS
    has weight 0 as a target. In conversations only tokens of answers have weight 1. Blocks without a target
    are left out; this requires the same block boundaries in every epoch (o = 0). Each batch is a pure
    function of its number.
    """

    stream: npt.NDArray[Any]
    """All tokens concatenated; may be a memory-mapped file."""
    rows: int
    """Blocks in a batch; the last batch of an epoch may have fewer."""
    length: int
    """Tokens in a block."""
    seed: int = 0
    ends: tuple[int, int] | None = None
    """BOS and EOS, if the stream has them."""
    loss_mask: npt.NDArray[Any] | None = None
    """1 for each token that is a target; None: all except BOS after EOS."""

    _target_starts: Ints | None = field(init=False, repr=False, default=None)
    """Starts of the blocks with targets, if `loss_mask` is given."""
    _cached_epoch: dict[int, Ints] = field(init=False, repr=False, default_factory=dict)
    """Cache of the last epoch used."""

    def __post_init__(self) -> None:
        _check_stream(len(self.stream), 1 if self.loss_mask is not None else self.length)
        if self.loss_mask is None:
            return
        starts = np.arange(0, len(self.stream) - 1, self.length)
        with_targets = starts[np.add.reduceat(self.loss_mask[1:] > 0, starts) > 0]
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
        return batch_of_blocks(self.stream, starts_N, stops_N, self.ends, self.loss_mask)

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
    loss_mask: npt.NDArray[Any] | None = None,
) -> list[Batch]:
    """Return batches in which every token except the first is a target once, in order."""
    _check_stream(len(stream), 1)
    starts = np.arange(0, len(stream) - 1, length)
    stops = np.minimum(starts + length, len(stream) - 1)
    return [
        batch_of_blocks(stream, starts[at : at + rows], stops[at : at + rows], ends, loss_mask)
        for at in range(0, len(starts), rows)
    ]


def batch_of_blocks(
    stream: npt.NDArray[Any],
    starts_N: Ints,
    stops_N: Ints,
    ends: tuple[int, int] | None,
    loss_mask: npt.NDArray[Any] | None = None,
) -> Batch:
    """Return a row for each block stream[start … stop − 1] with shifted targets, padded on the right."""
    lengths_N = stops_N - starts_N
    times_T = np.arange(int(lengths_N.max()))
    real_NT = times_T < lengths_N[:, None]
    places_NT = np.where(real_NT, starts_N[:, None] + times_T, 0)
    inputs_NT = np.where(real_NT, stream[places_NT], 0).astype(np.int64)
    targets_NT = np.where(real_NT, stream[places_NT + 1], 0).astype(np.int64)
    is_target_NT = real_NT
    if loss_mask is not None:
        is_target_NT = real_NT & (loss_mask[places_NT + 1] > 0)
    elif ends is not None:
        bos, eos = ends
        is_target_NT = real_NT & ~((inputs_NT == eos) & (targets_NT == bos))
    return Batch(
        torch.from_numpy(inputs_NT),
        torch.from_numpy(lengths_N),
        torch.from_numpy(targets_NT),
        torch.from_numpy(is_target_NT.astype(np.float32)),
    )


def _check_stream(tokens: int, length: int) -> None:
    if tokens < length + 1:
        raise ValueError(
            f"the text has {tokens} tokens, fewer than one block of {length} and its next token: "
            "give more text or a smaller length"
        )


Notify = Callable[[str], None]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Bucketed(Checked):
    """Complete rows of similar length, as many as a token budget allows."""

    tokens: int = integer(4096, at_least=1)
    """Maximum positions in a batch, padding included, on its longer side."""
    max_length: int | None = None
    """Maximum positions of a row; by default `tokens`."""
    long: Literal["fail", "cut", "drop"] = "fail"
    """Treatment of longer rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length is not None and not 2 <= self.max_length <= self.tokens:
            raise ValueError(f"max_length is {self.max_length}; it must be from 2 to {self.tokens} (tokens)")

    @property
    def longest(self) -> int:
        """Maximum positions of a row."""
        return self.tokens if self.max_length is None else self.max_length

    def feed(self, examples: Examples, ends: tuple[int, int], seed: int, notify: Notify) -> Feed:
        del ends
        return BucketFeed(self._fitting(examples, "training", notify), self.tokens, seed)

    def validation_batches(self, examples: Examples, ends: tuple[int, int], notify: Notify) -> list[Batch]:
        """Return validation batches: every example once."""
        del ends
        return bucketed_batches(self._fitting(examples, "validation", notify), self.tokens)

    def _fitting(self, examples: Examples, which: str, notify: Notify) -> Examples:
        limit = self.longest
        long_N = examples.sizes_NK.max(axis=1) > limit
        if not long_N.any():
            return examples
        message = f"{int(long_N.sum())} of {len(examples)} {which} examples are longer than {limit} tokens"
        if self.long == "cut":
            notify(f"{message}: cut")
            return replace(examples, limit=limit)
        if self.long == "drop" and not long_N.all():
            notify(f"{message}: left out")
            return SelectedExamples(examples, np.flatnonzero(~long_N))
        raise ValueError(
            f"{message}, the first is number {int(long_N.argmax()) + 1}: set long to "
            '"cut" or "drop", or raise max_length (and tokens)'
        )


@dataclass(frozen=True)
class Packed(Checked):
    """Blocks of equal length from the concatenated texts, without padding. For language models."""

    rows: int = integer(16, at_least=1)
    """Blocks in a batch."""
    length: int = integer(128, at_least=1)
    """Tokens in a block."""

    @property
    def longest(self) -> int:
        """Maximum positions of a row."""
        return self.length

    def feed(self, examples: Examples, ends: tuple[int, int], seed: int, notify: Notify) -> Feed:
        del notify
        stream, loss_mask = _stream_and_mask(examples)
        return PackFeed(stream, self.rows, self.length, seed, ends, loss_mask)

    def validation_batches(self, examples: Examples, ends: tuple[int, int], notify: Notify) -> list[Batch]:
        """Return validation batches: every token once."""
        del notify
        stream, loss_mask = _stream_and_mask(examples)
        return stream_batches(stream, self.rows, self.length, ends, loss_mask)


def _stream_and_mask(examples: Examples) -> tuple[Array, Array | None]:
    """Return all texts as one stream, and 1 for each token that is a target."""
    if not isinstance(examples, Sequences) or examples.source is not None:
        raise ValueError('packed batches are for plain texts; for pairs and labels choose kind = "bucketed"')
    return examples.target.values, None if examples.loss_mask is None else examples.loss_mask.values


Batches = Bucketed | Packed

BATCHES: dict[str, type[Batches]] = {"bucketed": Bucketed, "packed": Packed}
