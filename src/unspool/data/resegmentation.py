"""Batches whose texts are cut into tokens anew each time (BPE-dropout): pure functions of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.data.ragged import ragged
from unspool.protocols import Feed
from unspool.text import BPE, Codec, Separate
from unspool.text.bpe_dropout import BPEDropout

Cut = Callable[[Sequence[int], Random], list[int]]


@dataclass(frozen=True, eq=False)
class ResegmentedFeed:
    """The batches of another feed; a row that would become longer than `limit` stays as it is."""

    feed: Feed
    target: Cut | None
    source: Cut | None
    limit: int
    seed: int = 0

    carries: ClassVar[bool] = False

    @property
    def per_epoch(self) -> int:
        """As many as the other feed has."""
        return self.feed.per_epoch

    def batch(self, number: int) -> Batch:
        """The batch with this number."""
        batch, dice = self.feed.batch(number), Random(f"{self.seed}/{number}")
        if self.target is not None:
            batch = self._targets(batch, self.target, dice)
        if self.source is not None and batch.source_NS is not None and batch.source_lengths_N is not None:
            rows = _rows(batch.source_NS, batch.source_lengths_N)
            source_NS, lengths_N = _padded([self._cut(row, self.source, dice) for row in rows])
            batch = replace(batch, source_NS=source_NS, source_lengths_N=lengths_N)
        return batch

    def _targets(self, batch: Batch, cut: Cut, dice: Random) -> Batch:
        rows = [self._cut(row, cut, dice) for row in _rows(batch.targets_NU, batch.lengths_N)]
        begins = batch.inputs_NT[:, 0].tolist()
        targets_NT, lengths_N = _padded(rows)
        inputs_NT, _ = _padded([[begin, *row[:-1]] for begin, row in zip(begins, rows, strict=True)])
        weights_NT = (torch.arange(targets_NT.shape[1]) < lengths_N[:, None]).float()
        return replace(
            batch, inputs_NT=inputs_NT, lengths_N=lengths_N, targets_NU=targets_NT, weights_NU=weights_NT
        )

    def _cut(self, row: list[int], cut: Cut, dice: Random) -> list[int]:
        """… EOS, cut anew. (Of a row that was cut short the last token stays, whatever it is.)"""
        found = [*cut(row[:-1], dice), row[-1]]
        return found if len(found) <= self.limit else row


def drops(config: object) -> tuple[float, ...]:
    """BPE-dropout of targets and of sources; nothing where there is none."""
    sides = [config, config]
    if isinstance(config, Separate):
        sides = [config.side("target"), config.side("source")]
    rates = tuple(side.dropout if isinstance(side, BPE) else 0.0 for side in sides)
    return rates if any(rates) else ()


def resegmented(feed: Feed, config: object, text: Codec, limit: int, seed: int) -> Feed:
    """The feed, or one that cuts its texts anew where the text's settings ask for it."""
    rates = drops(config)
    if not rates:
        return feed
    codecs = (text, text.reading)
    target, source = (
        BPEDropout(codec, rate) if rate else None for codec, rate in zip(codecs, rates, strict=True)
    )
    return ResegmentedFeed(feed, target, source, limit, seed)


def _rows(tokens_NT: Tensor, lengths_N: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(tokens_NT.tolist(), lengths_N.tolist(), strict=True)]


def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    all_rows = ragged(rows)
    places, lengths = torch.arange(len(rows)).numpy(), all_rows.lengths
    return torch.from_numpy(all_rows.padded(places, lengths)), torch.from_numpy(lengths)
