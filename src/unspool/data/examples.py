"""Examples and row formats: token ids as inputs and targets of generators, classifiers and taggers.

language model     inputs  BOS y₁ … yₘ      targets  y₁ … yₘ EOS
encoder–decoder    the same, and            source   x₁ … xₙ EOS
classification     inputs  x₁ … xₙ          targets  k               U = 1
tagging            inputs  x₁ … xₙ          targets  k₁ … kₙ         U = n

Without BOS (some pretrained models), inputs are y₁ … yₘ and targets y₂ … yₘ EOS. The tag of a word is the
target of its first token; its other tokens have weight 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unspool.config import unknown
from unspool.data.batch import Batch, Ragged
from unspool.data.random_numbers import Ints
from unspool.data.rows import Row, RowFormat
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import WordTokens, tokenize_words


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
        return sizes if self.limit is None else np.minimum(sizes, self.limit)


@dataclass(frozen=True, eq=False)
class Sequences(Examples):
    """Texts, optionally with sources. A text is stored from the token before its first target to EOS.

    A truncated target loses its EOS; a truncated source keeps it.
    """

    target: Ragged
    source: Ragged | None = None
    loss_mask: Ragged | None = None
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
        loss_mask = self.loss_mask
        targets = Batch(
            torch.from_numpy(self.target.padded(rows_N, lengths_N)),
            torch.from_numpy(lengths_N),
            torch.from_numpy(self.target.padded(rows_N, lengths_N, skip=1)),
            real_mask(lengths_N).float()
            if loss_mask is None
            else torch.from_numpy(loss_mask.padded(rows_N, lengths_N, skip=1)).float(),
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

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode each text and add EOS; joined rows are encoded without BOS and EOS, END_OF_TEXT as []."""
        if not self.joined:
            # As prompts are encoded. An empty text becomes EOS EOS, so that it has a target.
            eos = bos_and_eos(tokenizer)[1]
            lines = encode_without_bos([line for (line,) in rows], tokenizer)
            return [[[*(tokenizer.with_bos(ids) or [eos]), eos]] for ids in lines]
        encoded = iter(encode_without_bos([line for row in rows for line in row], tokenizer))
        return [[next(encoded)] if row else [] for row in rows]

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        return Sequences(columns[0])


@dataclass(frozen=True)
class Pairs(RowFormat):
    """Two columns: a source and its target, for an encoder–decoder."""

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode both sides as BOS … EOS, each with its vocabulary."""
        sources = encode_with_bos_eos([source for source, _ in rows], tokenizer.source_tokenizer)
        targets = encode_with_bos_eos([target for _, target in rows], tokenizer)
        return list(zip(sources, targets, strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        source, target = columns
        return Sequences(target, source)


def encode_without_bos(lines: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Encode texts in the model's token order, without BOS; uses all cores."""
    return [tokenizer.to_model_order(each.ids) for each in tokenizer.encode_batch(lines)]


def encode_with_bos_eos(lines: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    bos, eos = bos_and_eos(tokenizer)
    return [[bos, *ids, eos] for ids in encode_without_bos(lines, tokenizer)]


def bos_and_eos(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return BOS and EOS; EOS replaces a missing BOS, as in GPT-2."""
    if not tokenizer.eos_ids:
        raise ValueError("the tokenizer has no EOS token (eos_ids): a model could not learn to stop")
    named = tokenizer.token_to_id(tokenizer.eos_token)
    eos = named if named in tokenizer.eos_ids else min(tokenizer.eos_ids)
    return (eos if tokenizer.bos_id is None else tokenizer.bos_id), eos


@dataclass(frozen=True, eq=False)
class LabelledExamples(Examples):
    """Texts with one label each, or with one label per token."""

    inputs: Ragged
    targets: Ragged
    each_token: bool
    """True if each token has a label, False if only the text has one."""
    none: int | None = None
    """The id of tokens without a label."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def sizes_NK(self) -> Ints:
        return self.limited(self.inputs.lengths[:, None])

    def batch(self, rows_N: Ints) -> Batch:
        lengths_N = self.limited(self.inputs.row_lengths(rows_N))
        counts_N = lengths_N if self.each_token else np.ones_like(lengths_N)
        targets_NU = self.targets.padded(rows_N, counts_N)
        counted_NU = real_mask(counts_N)
        if self.none is not None:
            counted_NU &= torch.from_numpy(targets_NU != self.none)
            targets_NU = np.where(targets_NU == self.none, 0, targets_NU)
        return Batch(
            torch.from_numpy(self.inputs.padded(rows_N, lengths_N)),
            torch.from_numpy(lengths_N),
            torch.from_numpy(targets_NU),
            counted_NU.float(),
        )


@dataclass(frozen=True)
class Classes(RowFormat):
    """Two columns: a label and a text."""

    def texts(self, row: Row) -> Sequence[str]:
        return row[1:]

    def labels_of(self, row: Row) -> Sequence[str]:
        return [row[0].strip()]

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Return the label's id, and the tokens without BOS and EOS."""
        inputs = encode_without_bos([line for _, line in rows], tokenizer)
        labels = [label_ids(self.labels_of(row), self.labels) for row in rows]
        return list(zip(labels, inputs, strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        targets, inputs = columns
        return LabelledExamples(inputs, targets, each_token=False)


@dataclass(frozen=True)
class Tags(RowFormat):
    """Two columns: words, and as many tags."""

    def texts(self, row: Row) -> Sequence[str]:
        return row[:1]

    def labels_of(self, row: Row) -> Sequence[str]:
        return row[1].split()

    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Return the tokens, and a tag for the first token of each word."""
        encoded = tokenize_words([words for words, _ in rows], tokenizer)
        return [self._row(found, self.labels_of(row)) for found, row in zip(encoded, rows, strict=True)]

    def _row(self, found: WordTokens, tags: Sequence[str]) -> tuple[list[int], list[int]]:
        if len(set(found.firsts)) != len(tags):
            text = " ".join(found.words)[:60]
            raise ValueError(
                f"{text!r} has {len(tags)} tags, but tokens for {len(set(found.firsts))} words: every word "
                "needs a tag and a token"
            )
        targets = [len(self.labels)] * len(found.ids)
        for first, number in zip(found.firsts, label_ids(tags, self.labels), strict=True):
            targets[first] = number
        return found.ids, targets

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        inputs, targets = columns
        return LabelledExamples(inputs, targets, each_token=True, none=len(self.labels))


class UnknownLabelError(ValueError):
    """A label that does not occur in the training rows."""

    def __init__(self, label: str, labels: Sequence[str]) -> None:
        super().__init__(unknown(label, labels, "label of the training data"))
        self.label = label


def label_ids(names: Sequence[str], labels: tuple[str, ...]) -> list[int]:
    for name in names:
        if name not in labels:
            raise UnknownLabelError(name, labels)
    return [labels.index(name) for name in names]


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the different labels in order; ValueError if there are fewer than two."""
    names = tuple(sorted(set(labels)))
    if len(names) < 2:
        raise ValueError(
            f"the data has {'one label, ' + repr(names[0]) if names else 'no label'}: two or more "
            "are needed; is it the right column?"
        )
    return names
