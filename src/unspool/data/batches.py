"""Settings of batches: rows bucketed by length, or blocks packed from one stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from unspool.data.batch import Batch
from unspool.data.bucketing import BucketFeed, bucketed_batches
from unspool.data.examples import Examples, SelectedExamples, Sequences
from unspool.data.packing import PackFeed, stream_batches
from unspool.interfaces import Feed

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Bucketed:
    """Complete rows of similar length, as many as a token budget allows."""

    tokens: int = 4096
    """Maximum positions in a batch, padding included, on its longer side."""
    max_length: int | None = None
    """Maximum positions of a row; by default `tokens`."""
    long: Literal["fail", "cut", "drop"] = "fail"
    """Treatment of longer rows."""

    takes_streams: ClassVar[bool] = False
    """True if a text may have any length."""

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"tokens is {self.tokens}; it must be 1 or more")
        if self.max_length is not None and not 2 <= self.max_length <= self.tokens:
            raise ValueError(f"max_length is {self.max_length}; it must be from 2 to {self.tokens} (tokens)")

    @property
    def longest(self) -> int:
        """Maximum positions of a row."""
        return self.tokens if self.max_length is None else self.max_length

    def feed(self, examples: Examples, ends: tuple[int, int], seed: int, say: Notify) -> Feed:
        """Return training batches."""
        del ends
        return BucketFeed(self._fitting(examples, "training", say), self.tokens, seed)

    def whole(self, examples: Examples, ends: tuple[int, int], say: Notify) -> list[Batch]:
        """Return validation batches: every example once."""
        del ends
        return bucketed_batches(self._fitting(examples, "validation", say), self.tokens)

    def _fitting(self, examples: Examples, which: str, say: Notify) -> Examples:
        limit = self.longest
        long_N = examples.sizes_NK.max(axis=1) > limit
        if not long_N.any():
            return examples
        message = f"{int(long_N.sum())} of {len(examples)} {which} examples are longer than {limit} tokens"
        if self.long == "cut":
            say(f"{message}: cut")
            return replace(examples, limit=limit)
        if self.long == "drop" and not long_N.all():
            say(f"{message}: left out")
            return SelectedExamples(examples, np.flatnonzero(~long_N))
        raise ValueError(
            f"{message}, the first is number {int(long_N.argmax()) + 1}: set long to "
            '"cut" or "drop", or raise max_length (and tokens)'
        )


@dataclass(frozen=True)
class Packed:
    """Blocks of equal length from the concatenated texts, without padding. For language models."""

    rows: int = 16
    """Blocks in a batch."""
    length: int = 128
    """Tokens in a block."""

    takes_streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rows < 1 or self.length < 1:
            raise ValueError(f"rows is {self.rows} and length is {self.length}; both must be 1 or more")

    @property
    def longest(self) -> int:
        """Maximum positions of a row."""
        return self.length

    def feed(self, examples: Examples, ends: tuple[int, int], seed: int, say: Notify) -> Feed:
        """Return training batches."""
        del say
        texts = _require_texts(examples)
        return PackFeed(texts.target.values, self.rows, self.length, seed, ends, texts.target_counts)

    def whole(self, examples: Examples, ends: tuple[int, int], say: Notify) -> list[Batch]:
        """Return validation batches: every token once."""
        del say
        texts = _require_texts(examples)
        return stream_batches(texts.target.values, self.rows, self.length, ends, texts.target_counts)


def _require_texts(examples: Examples) -> Sequences:
    if not isinstance(examples, Sequences) or examples.source is not None:
        raise ValueError('packed batches are for plain texts; for pairs and labels choose kind = "bucketed"')
    return examples


Batches = Bucketed | Packed

BATCHES: dict[str, type[Batches]] = {"bucketed": Bucketed, "packed": Packed}
