"""Token ids → rows to learn from, for language models and encoder–decoders.

language model     inputs  BOS y₁ … yₘ      targets  y₁ … yₘ EOS
encoder–decoder    the same, and            source   x₁ … xₙ EOS

Without BOS (a pretrained model whose prompts have none), inputs are y₁ … yₘ and targets y₂ … yₘ EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch

from unspool.data.batch import Batch, Ragged
from unspool.data.split import Ints
from unspool.tokenization import Tokenizer


class Examples(Protocol):
    """Rows that can be batched in any order."""

    def __len__(self) -> int: ...

    @property
    def sizes_NK(self) -> Ints:
        """How many positions each row has on each of its sides (one, or source and target)."""
        ...

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        ...

    def cut(self, limit: int) -> Self:
        """The same rows with at most `limit` positions on each side."""
        ...


@dataclass(frozen=True, eq=False)
class Sequences:
    """Texts, or texts with a source: each is stored from what precedes its first target to its EOS."""

    target: Ragged
    source: Ragged | None = None
    limit: int | None = None
    """The most positions of a row. A cut target has no EOS, for it does not end there; a source keeps it."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def sizes_NK(self) -> Ints:
        """Positions of source and target, or of the target alone."""
        sides = [self.target] if self.source is None else [self.source, self.target]
        sizes_NK = np.stack([side.lengths - 1 for side in sides], axis=1)
        return sizes_NK if self.limit is None else np.minimum(sizes_NK, self.limit)

    @property
    def target_counts(self) -> npt.NDArray[Any] | None:
        """For each token of all targets, whether it counts; None: every one does."""
        return None

    def cut(self, limit: int) -> Self:
        """The same rows with at most `limit` positions on each side."""
        return replace(self, limit=limit)

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        lengths_N = self._lengths(self.target, rows_N)
        inputs_NT = torch.from_numpy(self.target.padded(rows_N, lengths_N))
        targets_NT = torch.from_numpy(self.target.padded(rows_N, lengths_N, skip=1))
        weights_NT = real_mask(lengths_N).float()
        lengths = torch.from_numpy(lengths_N)
        if self.source is None:
            return Batch(inputs_NT, lengths, targets_NT, weights_NT)
        source_lengths_N = self._lengths(self.source, rows_N)
        source_NS = self.source.padded(rows_N, source_lengths_N, skip=1)
        ends_N = self.source.offsets[rows_N + 1] - 1
        source_NS[np.arange(len(rows_N)), source_lengths_N - 1] = self.source.values[ends_N]
        return Batch(
            inputs_NT,
            lengths,
            targets_NT,
            weights_NT,
            torch.from_numpy(source_NS),
            torch.from_numpy(source_lengths_N),
        )

    def _lengths(self, side: Ragged, rows_N: Ints) -> Ints:
        lengths_N = side.offsets[rows_N + 1] - side.offsets[rows_N] - 1
        return lengths_N if self.limit is None else np.minimum(lengths_N, self.limit)


@dataclass(frozen=True, eq=False)
class SelectedExamples:
    """Some of the examples."""

    all: Examples
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes_NK(self) -> Ints:
        """Positions on each side."""
        return self.all.sizes_NK[self.rows]

    def batch(self, rows_N: Ints) -> Batch:
        """These rows, padded on the right."""
        return self.all.batch(self.rows[rows_N])

    def cut(self, limit: int) -> SelectedExamples:
        """The same rows with at most `limit` positions on each side."""
        return replace(self, all=self.all.cut(limit))


def real_mask(lengths_N: Ints) -> torch.Tensor:
    """(N, T): True where a position is no padding."""
    lengths = torch.from_numpy(lengths_N)
    return torch.arange(int(lengths_N.max(initial=0))) < lengths[:, None]


# What the columns of a row are: a text; a source and its target.
#
# A form says which columns a vocabulary is learnt from, how a row becomes token ids, and what examples are
# made of the ids of all rows.


Row = tuple[str, ...]
END_OF_TEXT: Row = ()
"""Between two rows of joined ones: the text ends here, and another one begins."""


class RowFormat(Protocol):
    """What the columns of a row are."""

    @property
    def columns(self) -> int:
        """How many there are."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What a classifier or tagger chooses from; none for a text that is generated."""
        ...

    @property
    def joined(self) -> bool:
        """Whether all rows up to END together are one text."""
        ...

    @property
    def adds_bos(self) -> bool:
        """`Tokenizer.add_bos` of a vocabulary learnt from this data: whether prompts begin with BOS."""
        ...

    def texts(self, row: Row) -> Sequence[str]:
        """What a vocabulary is learnt from."""
        ...

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Each column of each row as numbers."""
        ...

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """What is learnt from."""
        ...


@dataclass(frozen=True)
class Texts:
    """One column: a text, for a language model."""

    joined: bool = False
    columns: int = 1
    labels: tuple[str, ...] = ()

    @property
    def adds_bos(self) -> bool:
        """Every text begins with BOS, unless it is a file: most blocks of a file begin in its middle."""
        return not self.joined

    def texts(self, row: Row) -> Sequence[str]:
        """The text."""
        return row

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """What `Tokenizer.encode` gives, then EOS; bare tokens if rows are joined, and none for END."""
        if not self.joined:
            return [[ids] for ids in encode_with_eos([line for (line,) in rows], text)]
        encoded = iter(encode_without_bos([line for row in rows for line in row], text))
        return [[next(encoded)] if row else [] for row in rows]

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of a language model."""
        return Sequences(columns[0])


@dataclass(frozen=True)
class Pairs:
    """Two columns: a source and its target, for an encoder–decoder."""

    joined: bool = False
    adds_bos: bool = False
    """A decoder always begins with BOS; a source never does."""
    columns: int = 2
    labels: tuple[str, ...] = ()

    def texts(self, row: Row) -> Sequence[str]:
        """Both sides."""
        return row

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """BOS … EOS for both sides, each in its own vocabulary where it has one."""
        sources, targets = ([row[side] for row in rows] for side in (0, 1))
        return list(
            zip(
                encode_with_bos_eos(sources, text.source_tokenizer),
                encode_with_bos_eos(targets, text),
                strict=True,
            )
        )

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of an encoder–decoder."""
        source, target = columns
        return Sequences(target, source)


def encode_without_bos(lines: Sequence[str], text: Tokenizer) -> list[list[int]]:
    """The tokens of each text in the model's order, without a BOS that `encode` may write; on all cores."""
    return [text.to_model_order(each.ids) for each in text.encode_batch(lines)]


def encode_with_eos(lines: Sequence[str], text: Tokenizer) -> list[list[int]]:
    """The tokens of each text and EOS: a model learns from exactly what a prompt becomes.

    A text without any token is EOS twice, so that one of them is a target.
    """
    eos = bos_and_eos(text)[1]
    return [[*(text.with_bos(ids) or [eos]), eos] for ids in encode_without_bos(lines, text)]


def encode_with_bos_eos(lines: Sequence[str], text: Tokenizer) -> list[list[int]]:
    """BOS … EOS for each text."""
    bos, eos = bos_and_eos(text)
    return [[bos, *ids, eos] for ids in encode_without_bos(lines, text)]


def bos_and_eos(text: Tokenizer) -> tuple[int, int]:
    """BOS and EOS; EOS stands in for a BOS that is not there, as in GPT-2."""
    if not text.eos_ids:
        raise ValueError("the text has no token that ends a text (eos_ids): a model could not learn to stop")
    named = text.token_to_id(text.eos_token)
    eos = named if named in text.eos_ids else min(text.eos_ids)
    return (eos if text.bos_id is None else text.bos_id), eos
