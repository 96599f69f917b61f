"""The kinds of data that a recipe may name: `kind` in its [data] section."""

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
    """Where rows come from: a frozen dataclass; split.HeldOut gives `holds_out` and `held`."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """The files that are read, by the name of the field that holds their paths."""
        ...

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """The rows to learn from; they must be the same whenever they are asked for."""
        ...

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """The rows to validate on; None where they have to be held out."""
        ...

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """What the columns of these rows are."""
        ...

    @property
    def holds_out(self) -> bool:
        """Whether any row is held out."""
        ...

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        """For each of `count` rows to learn from, whether it is held out for validation."""
        ...


@runtime_checkable
class OwnText(Protocol):
    """Data that brings its vocabulary along, so that a recipe needs no [text]."""

    def codec(self) -> Tokenizer:
        """The vocabulary."""
        ...


# To add a kind: write its dataclass in a file of its own, and its line here.
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
