"""Settings of batches: rows bucketed by length, or blocks packed from one stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from unspool.checked_fields import Checked, integer
from unspool.data.batch import Batch
from unspool.data.bucketing import BucketFeed, bucketed_batches
from unspool.data.examples import Examples, SelectedExamples, Sequences
from unspool.data.packing import PackFeed, stream_batches
from unspool.interfaces import Feed

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

    takes_streams: ClassVar[bool] = False
    """True if a text may have any length."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
class Packed(Checked):
    """Blocks of equal length from the concatenated texts, without padding. For language models."""

    rows: int = integer(16, at_least=1)
    """Blocks in a batch."""
    length: int = integer(128, at_least=1)
    """Tokens in a block."""

    takes_streams: ClassVar[bool] = True

    @property
    def longest(self) -> int:
        """Maximum positions of a row."""
        return self.length

    def feed(self, examples: Examples, ends: tuple[int, int], seed: int, say: Notify) -> Feed:
        """Return training batches."""
        del say
        stream, counts = _stream_and_counts(examples)
        return PackFeed(stream, self.rows, self.length, seed, ends, counts)

    def whole(self, examples: Examples, ends: tuple[int, int], say: Notify) -> list[Batch]:
        """Return validation batches: every token once."""
        del say
        stream, counts = _stream_and_counts(examples)
        return stream_batches(stream, self.rows, self.length, ends, counts)


def _stream_and_counts(examples: Examples) -> tuple[Array, Array | None]:
    """Return all texts as one stream, and 1 for each token that is a target."""
    if not isinstance(examples, Sequences) or examples.source is not None:
        raise ValueError('packed batches are for plain texts; for pairs and labels choose kind = "bucketed"')
    return examples.target.values, None if examples.counts is None else examples.counts.values


Batches = Bucketed | Packed

BATCHES: dict[str, type[Batches]] = {"bucketed": Bucketed, "packed": Packed}
