"""Length bucketing: batches of rows of similar length, with little padding, reshuffled in every epoch.

    rows × longest row ≤ tokens

Rows are sorted by rounded-up length, and rows of equal rounded length are shuffled. The sequence of lengths
is the same in every epoch, and so are the boundaries and the number of batches. The content and the order
of batches depend only on (seed, epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unspool.data.batch import Batch
from unspool.data.examples import Examples
from unspool.data.random_numbers import Ints, random_bits, random_permutation
from unspool.interfaces import Feed
from unspool.tokenization import BPE, Separate, Tokenizer
from unspool.tokenization.vocabulary import BPEDropout

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
    _known: dict[int, tuple[Ints, Ints]] = field(init=False, repr=False, default_factory=dict)
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
        known = self._known.get(epoch)
        if known is None:
            rows_N = np.argsort(_shuffled_keys(self._ranks_N, self.seed, epoch, _ROWS), kind="stable")
            known = rows_N, random_permutation(self.per_epoch, self.seed, epoch, _BATCHES)
            self._known.clear()
            self._known[epoch] = known
        return known


def bucketed_batches(examples: Examples, tokens: int) -> list[Batch]:
    """Return batches with every example once, short ones first."""
    ranks_N, widths_N = _rank_by_length(examples, tokens)
    rows_N = np.argsort(ranks_N, kind="stable")
    ends = batch_boundaries(np.sort(widths_N), tokens)
    return [examples.batch(rows_N[start:end]) for start, end in pairwise(ends)]


def batch_boundaries(widths_N: Ints, tokens: int) -> Ints:
    """Return the start of each batch and the end of the last; each is as large as `tokens` allows."""
    found = [0]
    while (start := found[-1]) < len(widths_N):
        most = max(1, tokens // int(widths_N[start]))
        ahead = widths_N[start : start + most]
        padded = ahead * np.arange(1, len(ahead) + 1)
        found.append(start + max(1, int(np.searchsorted(padded, tokens, side="right"))))
    return np.array(found, dtype=np.int64)


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


def _shuffled_keys(ranks_N: Ints, *seed: int) -> Ints:
    """Return sort keys with random lower bits, so that rows of equal rank are in random order."""
    return (ranks_N << 32) | (random_bits(len(ranks_N), *seed) >> np.uint64(32)).astype(np.int64)


Segmenter = Callable[[Sequence[int], Random], list[int]]


@dataclass(frozen=True, eq=False)
class ResegmentedFeed:
    """BPE-dropout: the batches of another feed, segmented anew. A row stays if it would exceed `limit`."""

    feed: Feed
    target: Segmenter | None
    source: Segmenter | None
    limit: int
    seed: int = 0

    @property
    def per_epoch(self) -> int:
        return self.feed.per_epoch

    def batch(self, number: int) -> Batch:
        batch, rng = self.feed.batch(number), Random(f"{self.seed}/{number}")
        if self.target is not None:
            batch = self._targets(batch, self.target, rng)
        if self.source is not None and batch.source_NS is not None and batch.source_lengths_N is not None:
            rows = _unpad(batch.source_NS, batch.source_lengths_N)
            source_NS, lengths_N = _pad([self._cut(row, self.source, rng) for row in rows])
            batch = replace(batch, source_NS=source_NS, source_lengths_N=lengths_N)
        return batch

    def _targets(self, batch: Batch, cut: Segmenter, rng: Random) -> Batch:
        rows = [self._cut(row, cut, rng) for row in _unpad(batch.targets_NU, batch.lengths_N)]
        begins = batch.inputs_NT[:, 0].tolist()
        targets_NT, lengths_N = _pad(rows)
        inputs_NT, _ = _pad([[begin, *row[:-1]] for begin, row in zip(begins, rows, strict=True)])
        weights_NT = (torch.arange(targets_NT.shape[1]) < lengths_N[:, None]).float()
        return replace(
            batch, inputs_NT=inputs_NT, lengths_N=lengths_N, targets_NU=targets_NT, weights_NU=weights_NT
        )

    def _cut(self, row: list[int], cut: Segmenter, rng: Random) -> list[int]:
        """Segment a row anew, except for its last token (EOS, or any token of a truncated row)."""
        found = [*cut(row[:-1], rng), row[-1]]
        return found if len(found) <= self.limit else row


def bpe_dropout_rates(config: object) -> tuple[float, ...]:
    """Return the BPE-dropout rates of targets and sources, or () if both are 0."""
    sides = [config, config]
    if isinstance(config, Separate):
        sides = [config.side("target"), config.side("source")]
    rates = tuple(side.dropout if isinstance(side, BPE) else 0.0 for side in sides)
    return rates if any(rates) else ()


def with_bpe_dropout(feed: Feed, config: object, tokenizer: Tokenizer, limit: int, seed: int) -> Feed:
    """Return the feed, with BPE-dropout if the tokenizer's settings ask for it."""
    rates = bpe_dropout_rates(config)
    if not rates:
        return feed
    codecs = (tokenizer, tokenizer.source_tokenizer)
    target, source = (
        BPEDropout(codec, rate) if rate else None for codec, rate in zip(codecs, rates, strict=True)
    )
    return ResegmentedFeed(feed, target, source, limit, seed)


def _unpad(tokens_NT: Tensor, lengths_N: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(tokens_NT.tolist(), lengths_N.tolist(), strict=True)]


def _pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    padded_NT = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    return padded_NT, torch.tensor([len(row) for row in rows])
