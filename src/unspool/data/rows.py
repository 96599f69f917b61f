"""Rows of training data: their source (`Data`), those held out for validation, and their format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unspool.checked_fields import Checked, integer, number
from unspool.data.random_numbers import random_permutation
from unspool.data.reading import OnProgress
from unspool.tokenization import Tokenizer

if TYPE_CHECKING:
    from unspool.data.batch import Ragged
    from unspool.data.examples import Examples

Row = tuple[str, ...]
END_OF_TEXT: Row = ()
"""Separates the texts of joined rows."""


@dataclass(frozen=True)
class RowFormat(ABC):
    """The format of a row: columns that train a vocabulary, encoding, and resulting examples."""

    labels: tuple[str, ...] = ()
    """The labels of a classifier or tagger; () for generated text."""
    joined: bool = False
    """True if all rows up to END_OF_TEXT are one text."""

    columns: ClassVar[int] = 2
    """Columns of numbers that `encode` returns."""
    adds_bos: ClassVar[bool] = False
    """`Tokenizer.add_bos` of a vocabulary learnt from this data: True if prompts begin with BOS."""

    def texts(self, row: Row) -> Sequence[str]:
        """Return the columns that train a vocabulary."""
        return row

    def labels_of(self, row: Row) -> Sequence[str]:  # noqa: ARG002
        """Return the labels in a row."""
        return ()

    @abstractmethod
    def encode(self, rows: Sequence[Row], text: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode each column of each row."""

    @abstractmethod
    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Return the training examples."""


class Data(ABC):
    """A source of rows: a frozen dataclass."""

    row_format: ClassVar[RowFormat]
    """The format of the rows, unless `form` is overridden."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Return setting → paths of the files that are read."""
        return {}

    @abstractmethod
    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the training rows, always the same."""

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:  # noqa: ARG002
        """Yield the validation rows; None if they are held out from the training rows."""
        return None

    def form(self, rows: Iterable[Row]) -> RowFormat:  # noqa: ARG002
        """Return the format of these rows."""
        return self.row_format

    @property
    def holds_out(self) -> bool:
        """True if any training row is held out for validation."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:  # noqa: ARG002
        """Return a mask of `count` training rows: True for those held out."""
        return np.zeros(count, dtype=np.bool_)


@runtime_checkable
class OwnTokenizer(Protocol):
    """Data with a vocabulary, so that a recipe does without [tokenizer]."""

    def codec(self) -> Tokenizer:
        """Return its tokenizer."""
        ...


@dataclass(frozen=True, kw_only=True)
class HeldOut(Checked, Data):
    """Data of which a part may be held out for validation."""

    valid_share: float = number(0.0, at_least=0, below=1)
    """Share of the rows held out for validation, from 0 to 1."""
    valid_lines: int = integer(0, at_least=0)
    """Number of rows held out for validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.valid_share and self.valid_lines:
            raise ValueError("valid_share and valid_lines are both given: choose one of them")

    @property
    def holds_out(self) -> bool:
        return bool(self.valid_share or self.valid_lines)

    @property
    def holds_out_last(self) -> bool:
        """True if the last rows are held out instead of random ones, because neighbours belong together."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        mask = super().held(count, seed)
        if not self.holds_out:
            return mask
        wanted = self.valid_lines or max(1, round(self.valid_share * count))
        if wanted >= count:
            raise ValueError(
                f"{wanted} rows are to be held out for validation, but there are only {count}: hold out fewer"
            )
        order = np.arange(count)[::-1] if self.holds_out_last else random_permutation(count, seed)
        mask[order[:wanted]] = True
        return mask
