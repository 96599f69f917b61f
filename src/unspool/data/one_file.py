"""What all data has that comes from one file to learn from, and perhaps another one to validate on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unspool.data.forms import Row
from unspool.data.meter import Advance
from unspool.data.read import MAX_LINE_BYTES
from unspool.data.split import HeldOut


@dataclass(frozen=True, kw_only=True)
class OneFile(HeldOut, ABC):
    """A file to learn from."""

    train: str
    """The file to learn from."""
    valid: str | None = None
    """The file to validate on."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    @abstractmethod
    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""

    def files(self) -> Mapping[str, str]:
        """The files that are read, by the name of their setting."""
        return {"train": self.train} | ({"valid": self.valid} if self.valid is not None else {})

    def train_rows(self, advance: Advance) -> Iterator[Row]:
        """The rows to learn from."""
        return self.rows(self.train, advance)

    def valid_rows(self, advance: Advance) -> Iterator[Row] | None:
        """The rows of the file to validate on."""
        return None if self.valid is None else self.rows(self.valid, advance)
