"""Texts with labels: one for the whole text (classification), or one for every word (tagging).

    classification   inputs x₁ … xₙ   targets  k         U = 1
    tagging          inputs x₁ … xₙ   targets  k₁ … kₙ   U = n

The tag of a word is the target of its first token; its other tokens have weight 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unspool.config import unknown
from unspool.data.batch import Batch, Ragged
from unspool.data.examples import Examples, encode_without_bos, real_mask
from unspool.data.random_numbers import Ints
from unspool.data.rows import Row, RowFormat
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import WordTokens, tokenize_words


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

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Return the label's id, and the tokens without BOS and EOS."""
        inputs = encode_without_bos([line for _, line in rows], text)
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

    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Return the tokens, and a tag for the first token of each word."""
        encoded = tokenize_words([words for words, _ in rows], text)
        return [self._row(found, self.labels_of(row)) for found, row in zip(encoded, rows, strict=True)]

    def _row(self, found: WordTokens, tags: Sequence[str]) -> tuple[list[int], list[int]]:
        if len(set(found.firsts)) != len(tags):
            said = " ".join(found.words)[:60]
            raise ValueError(
                f"{said!r} has {len(tags)} tags, but tokens for {len(set(found.firsts))} words: every word "
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
    """Return the id of each label."""
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
