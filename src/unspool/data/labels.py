"""Texts with labels: one for the whole text (classification), or one for every word (tagging).

classification   inputs x₁ … xₙ   targets  k         U = 1
tagging          inputs x₁ … xₙ   targets  k₁ … kₙ   U = n
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from unspool.config import unknown
from unspool.data.dice import Ints
from unspool.data.examples import Examples, real
from unspool.data.forms import Row, bare
from unspool.data.ragged import Ragged
from unspool.protocols import Batch
from unspool.text import Codec


@dataclass(frozen=True, eq=False)
class Labelled:
    """Texts and their labels: one label each, or as many as tokens."""

    inputs: Ragged
    targets: Ragged
    each_token: bool
    """Whether every token has a label, or only the whole text."""
    limit: int | None = None
    """The most tokens of a text."""

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def sizes_NK(self) -> Ints:
        """How many tokens a text has."""
        sizes_NK = self.inputs.lengths[:, None]
        return sizes_NK if self.limit is None else np.minimum(sizes_NK, self.limit)

    def cut(self, limit: int) -> Labelled:
        """The same texts with at most `limit` tokens."""
        return replace(self, limit=limit)

    def batch(self, rows_N: Ints) -> Batch:
        """These texts, padded on the right."""
        lengths_N = self.inputs.offsets[rows_N + 1] - self.inputs.offsets[rows_N]
        if self.limit is not None:
            lengths_N = np.minimum(lengths_N, self.limit)
        counts_N = lengths_N if self.each_token else np.ones_like(lengths_N)
        return Batch(
            torch.from_numpy(self.inputs.padded(rows_N, lengths_N)),
            torch.from_numpy(lengths_N),
            torch.from_numpy(self.targets.padded(rows_N, counts_N)),
            real(counts_N).float(),
        )


@dataclass(frozen=True)
class Classes:
    """Two columns: a label and a text."""

    labels: tuple[str, ...]
    joined: bool = False
    columns: int = 2

    def texts(self, row: Row) -> Sequence[str]:
        """The text alone."""
        return row[1:]

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
        """The label's number, and the tokens without BOS and EOS."""
        inputs = bare([line for _, line in rows], text)
        labels = [numbers([label.strip()], self.labels) for label, _ in rows]
        return list(zip(labels, inputs, strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of a classifier."""
        targets, inputs = columns
        return Labelled(inputs, targets, each_token=False)


@dataclass(frozen=True)
class Tags:
    """Two columns: words, and as many tags."""

    labels: tuple[str, ...]
    joined: bool = False
    columns: int = 2

    def texts(self, row: Row) -> Sequence[str]:
        """The words alone."""
        return row[:1]

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
        """One token and one tag for every word."""
        inputs = bare([words for words, _ in rows], text)
        targets = [numbers(tags.split(), self.labels) for _, tags in rows]
        for (words, _), ids, tags in zip(rows, inputs, targets, strict=True):
            if len(ids) != len(tags):
                raise ValueError(
                    f"{words[:60]!r} has {len(ids)} tokens but {len(tags)} tags: for tagging, a word must be "
                    'one token; choose the text kind = "words"'
                )
        return list(zip(inputs, targets, strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of a tagger."""
        inputs, targets = columns
        return Labelled(inputs, targets, each_token=True)


def numbers(found: Sequence[str], labels: tuple[str, ...]) -> list[int]:
    """Each label's number."""
    for label in found:
        if label not in labels:
            raise ValueError(unknown(label, labels, "label of the training data"))
    return [labels.index(label) for label in found]


def choice(labels: Iterable[str]) -> tuple[str, ...]:
    """All labels once, in order; an error where there is nothing to choose between."""
    found = tuple(sorted(set(labels)))
    if len(found) < 2:
        raise ValueError(
            f"the data has {'one label, ' + repr(found[0]) if found else 'no label'}: there is nothing to "
            "choose between; is it the right column?"
        )
    return found
