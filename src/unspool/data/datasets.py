"""The kinds of data in a recipe's [data] section, and their interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unspool.data.chats import ChatJSONL, ChatLines
from unspool.data.examples import Row, RowFormat
from unspool.data.known_languages.made_data import LanguageData, TaskData
from unspool.data.line_formats import JSONL, TSV, Dialogues, LabelledLines, Lines, Parallel, TaggedLines
from unspool.data.packaged import Packaged
from unspool.data.reading import OnProgress
from unspool.tokenization import Tokenizer


class Data(Protocol):
    """A source of rows: a frozen dataclass. `split.HeldOut` implements `holds_out` and `held`."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Return field name → paths of the files that are read."""
        ...

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the training rows, always the same."""
        ...

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """Yield the validation rows; None if they are held out from the training rows."""
        ...

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of these rows."""
        ...

    @property
    def holds_out(self) -> bool:
        """True if any row is held out."""
        ...

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        """Return a mask of `count` training rows: True for those held out for validation."""
        ...


@runtime_checkable
class OwnText(Protocol):
    """Data with a vocabulary, so that a recipe does without [text]."""

    def codec(self) -> Tokenizer:
        """Return its tokenizer."""
        ...


DATA: dict[str, type[Any]] = {
    "chat_jsonl": ChatJSONL,
    "chat_lines": ChatLines,
    "dialogues": Dialogues,
    "jsonl": JSONL,
    "labelled": LabelledLines,
    "language": LanguageData,
    "lines": Lines,
    "package": Packaged,
    "parallel": Parallel,
    "tagged": TaggedLines,
    "task": TaskData,
    "tsv": TSV,
}
