"""Text files with one text a line, for a language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Row, RowForm, Texts
from unspool.data.text_files import TextFiles


@dataclass(frozen=True, kw_only=True)
class Lines(TextFiles):
    """One text a line, or the whole file as one text (for packed batches)."""

    document: Literal["line", "file"] = "line"
    """What one text is; in a "file", line ends are tokens like others, and its end is what is held out."""

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Texts(joined=self.joined)

    @property
    def joined(self) -> bool:
        """Whether all rows of a file are one text."""
        return self.document == "file"

    @property
    def hangs_together(self) -> bool:
        """A whole file does; lines are texts of their own."""
        return self.joined

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        end = "\n" if self.joined else ""
        for line in read_lines(path, self.max_line_bytes, advance):
            yield (line + end,)
