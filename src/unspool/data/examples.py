"""Examples: token ids as inputs and targets of language models and encoder–decoders, and row formats.

language model     inputs  BOS y₁ … yₘ      targets  y₁ … yₘ EOS
encoder–decoder    the same, and            source   x₁ … xₙ EOS

Without BOS (some pretrained models), inputs are y₁ … yₘ and targets y₂ … yₘ EOS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unspool.data.batch import Batch, Ragged
from unspool.data.random_numbers import Ints
from unspool.data.rows import Row, RowFormat
from unspool.tokenization import Tokenizer


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples(ABC):
    """Rows that can be batched in any order."""

    limit: int | None = None
    """Maximum positions of a row on each side."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def sizes_NK(self) -> Ints:
        """Positions of each row on each side (one, or source and target)."""

    @abstractmethod
    def batch(self, rows_N: Ints) -> Batch:
        """Return these rows, padded on the right."""

    def limited(self, sizes: Ints) -> Ints:
        """Return the sizes, at most `limit`."""
        return sizes if self.limit is None else np.minimum(sizes, self.limit)


@dataclass(frozen=True, eq=False)
class Sequences(Examples):
    """Texts, optionally with sources. A text is stored from the token before its first target to EOS.

    A truncated target loses its EOS; a truncated source keeps it.
    """

    target: Ragged
    source: Ragged | None = None
    counts: Ragged | None = None
    """1 for each token that is a target; None if all are."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def sizes_NK(self) -> Ints:
        """Positions of source and target, or of the target alone."""
        sides = [self.target] if self.source is None else [self.source, self.target]
        return self.limited(np.stack([side.lengths - 1 for side in sides], axis=1))

    def batch(self, rows_N: Ints) -> Batch:
        lengths_N = self.limited(self.target.row_lengths(rows_N) - 1)
        counts = self.counts
        targets = Batch(
            torch.from_numpy(self.target.padded(rows_N, lengths_N)),
            torch.from_numpy(lengths_N),
            torch.from_numpy(self.target.padded(rows_N, lengths_N, skip=1)),
            real_mask(lengths_N).float()
            if counts is None
            else torch.from_numpy(counts.padded(rows_N, lengths_N, skip=1)).float(),
        )
        if self.source is None:
            return targets
        source_lengths_N = self.limited(self.source.row_lengths(rows_N) - 1)
        source_NS = self.source.padded(rows_N, source_lengths_N, skip=1)
        ends_N = self.source.offsets[rows_N + 1] - 1
        source_NS[np.arange(len(rows_N)), source_lengths_N - 1] = self.source.values[ends_N]
        sources = torch.from_numpy(source_NS), torch.from_numpy(source_lengths_N)
        return replace(targets, source_NS=sources[0], source_lengths_N=sources[1])


@dataclass(frozen=True, eq=False)
class SelectedExamples(Examples):
    """A selection of examples."""

    all: Examples
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes_NK(self) -> Ints:
        return self.all.sizes_NK[self.rows]

    def batch(self, rows_N: Ints) -> Batch:
        return self.all.batch(self.rows[rows_N])


def real_mask(lengths_N: Ints) -> torch.Tensor:
    """Return (N, T): True for positions that are not padding."""
    lengths = torch.from_numpy(lengths_N)
    return torch.arange(int(lengths_N.max(initial=0))) < lengths[:, None]


@dataclass(frozen=True)
class Texts(RowFormat):
    """One column: a text, for a language model."""

    columns = 1
    adds_bos = True

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode each text and add EOS; joined rows are encoded without BOS and EOS, END_OF_TEXT as []."""
        if not self.joined:
            # As prompts are encoded. An empty text becomes EOS EOS, so that it has a target.
            eos = bos_and_eos(text)[1]
            lines = encode_without_bos([line for (line,) in rows], text)
            return [[[*(text.with_bos(ids) or [eos]), eos]] for ids in lines]
        encoded = iter(encode_without_bos([line for row in rows for line in row], text))
        return [[next(encoded)] if row else [] for row in rows]

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        return Sequences(columns[0])


@dataclass(frozen=True)
class Pairs(RowFormat):
    """Two columns: a source and its target, for an encoder–decoder."""

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode both sides as BOS … EOS, each with its vocabulary."""
        sources = encode_with_bos_eos([source for source, _ in rows], text.source_tokenizer)
        targets = encode_with_bos_eos([target for _, target in rows], text)
        return list(zip(sources, targets, strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        source, target = columns
        return Sequences(target, source)


def encode_without_bos(lines: Sequence[str], text: Tokenizer) -> list[list[int]]:
    """Encode texts in the model's token order, without BOS; uses all cores."""
    return [text.to_model_order(each.ids) for each in text.encode_batch(lines)]


def encode_with_bos_eos(lines: Sequence[str], text: Tokenizer) -> list[list[int]]:
    """Encode texts as BOS … EOS."""
    bos, eos = bos_and_eos(text)
    return [[bos, *ids, eos] for ids in encode_without_bos(lines, text)]


def bos_and_eos(text: Tokenizer) -> tuple[int, int]:
    """Return BOS and EOS; EOS replaces a missing BOS, as in GPT-2."""
    if not text.eos_ids:
        raise ValueError("the tokenizer has no EOS token (eos_ids): a model could not learn to stop")
    named = text.token_to_id(text.eos_token)
    eos = named if named in text.eos_ids else min(text.eos_ids)
    return (eos if text.bos_id is None else text.bos_id), eos
