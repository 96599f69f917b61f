"""A file with a label and a text a line, for classification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unspool.data.labelled_examples import Classes, choice
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Row, RowForm
from unspool.data.text_files import TextFiles
from unspool.data.tsv import check_columns, columns


@dataclass(frozen=True, kw_only=True)
class LabelledLines(TextFiles):
    """A label and a text a line, in tab-separated columns."""

    label: int = 1
    """Which column is the label, counted from 1."""
    text: int = 2
    """Which column is the text, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(label=self.label, text=self.text)

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is; the labels are those of these rows."""
        return Classes(choice(label.strip() for label, text in rows if label.strip() and text.strip()))

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        return columns(path, (self.label, self.text), self.max_line_bytes, advance)
