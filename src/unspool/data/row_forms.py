"""What the columns of a row are: a text; a source and its target.

A form says which columns a vocabulary is learnt from, how a row becomes token ids, and what examples are made
of the ids of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unspool.data.examples import Examples, Sequences
from unspool.data.ragged import Ragged
from unspool.text import Codec

Row = tuple[str, ...]
END: Row = ()
"""Between two rows of joined ones: the text ends here, and another one begins."""


class RowForm(Protocol):
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
        """`Codec.add_bos` of a vocabulary learnt from this data: whether prompts begin with BOS."""
        ...

    def texts(self, row: Row) -> Sequence[str]:
        """What a vocabulary is learnt from."""
        ...

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
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

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
        """What `Codec.encode` gives, then EOS; the bare tokens where rows are joined, and none for END."""
        if not self.joined:
            return [[ids] for ids in whole([line for (line,) in rows], text)]
        encoded = iter(bare([line for row in rows for line in row], text))
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

    def encode(self, rows: Sequence[Row], text: Codec) -> Sequence[Sequence[list[int]]]:
        """BOS … EOS for both sides, each in its own vocabulary where it has one."""
        sources, targets = ([row[side] for row in rows] for side in (0, 1))
        return list(zip(framed(sources, text.reading), framed(targets, text), strict=True))

    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Rows of an encoder–decoder."""
        source, target = columns
        return Sequences(target, source)


def bare(lines: Sequence[str], text: Codec) -> list[list[int]]:
    """The tokens of each text in the model's order, without a BOS that `encode` may write; on all cores."""
    return [text.ordered(each.ids) for each in text.encode_batch(lines)]


def whole(lines: Sequence[str], text: Codec) -> list[list[int]]:
    """The tokens of each text and EOS: a model learns from exactly what a prompt becomes.

    A text without any token is EOS twice, so that one of them is a target.
    """
    eos = ends(text)[1]
    return [[*(text.with_bos(ids) or [eos]), eos] for ids in bare(lines, text)]


def framed(lines: Sequence[str], text: Codec) -> list[list[int]]:
    """BOS … EOS for each text."""
    bos, eos = ends(text)
    return [[bos, *ids, eos] for ids in bare(lines, text)]


def ends(text: Codec) -> tuple[int, int]:
    """BOS and EOS; EOS stands in for a BOS that is not there, as in GPT-2."""
    if not text.eos_ids:
        raise ValueError("the text has no token that ends a text (eos_ids): a model could not learn to stop")
    named = text.token_id(text.eos_token)
    eos = named if named in text.eos_ids else min(text.eos_ids)
    return (eos if text.bos_id is None else text.bos_id), eos
