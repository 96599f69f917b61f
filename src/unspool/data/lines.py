"""A text file with one text a line, for a language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from unspool.data.forms import Form, Row, Texts
from unspool.data.meter import Advance
from unspool.data.read import MAX_LINE_BYTES, read_lines
from unspool.data.split import HeldOut


@dataclass(frozen=True, kw_only=True)
class Lines(HeldOut):
    """One text a line, or the whole file as one text (for packed batches)."""

    train: str
    """The file to learn from."""
    valid: str | None = None
    """The file to validate on."""
    document: Literal["line", "file"] = "line"
    """What one text is; in a "file", line ends are tokens like others, and its end is held out."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    def files(self) -> Mapping[str, str]:
        """The files that are read, by the name of their setting."""
        return {"train": self.train} | ({"valid": self.valid} if self.valid is not None else {})

    def train_rows(self, advance: Advance) -> Iterator[Row]:
        """The rows to learn from."""
        return self._rows(self.train, advance)

    def valid_rows(self, advance: Advance) -> Iterator[Row] | None:
        """The rows of the file to validate on."""
        return None if self.valid is None else self._rows(self.valid, advance)

    def form(self, rows: Iterable[Row]) -> Form:
        """What a row is."""
        del rows
        return Texts(joined=self.document == "file")

    def _rows(self, path: str, advance: Advance) -> Iterator[Row]:
        end = "\n" if self.document == "file" else ""
        for line in read_lines(path, self.max_line_bytes, advance):
            yield (line + end,)
