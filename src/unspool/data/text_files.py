"""What all data has that comes from text files: some to learn from, and perhaps others to validate on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from unspool.data.read import MAX_LINE_BYTES
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import END, Row
from unspool.data.split import HeldOut

Paths = str | tuple[str, ...]
"""One file, or several that are read one after the other; what gzip has packed is unpacked on the way."""


def listed(name: str, paths: Paths | None) -> tuple[str, ...]:
    """All paths of a setting; none where it was left out."""
    if paths == ():
        raise ValueError(f"{name} is an empty list: name at least one file")
    return () if paths is None else (paths,) if isinstance(paths, str) else tuple(paths)


@dataclass(frozen=True, kw_only=True)
class TextFiles(HeldOut, ABC):
    """Files to learn from."""

    train: Paths
    """The file to learn from, or a list of files."""
    valid: Paths | None = None
    """The file to validate on, or a list of files."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files()

    @property
    def joined(self) -> bool:
        """Whether all rows of a file are one text."""
        return False

    @abstractmethod
    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """The files that are read, by the name of their setting."""
        found = {name: listed(name, getattr(self, name)) for name in ("train", "valid")}
        return {name: paths for name, paths in found.items() if paths}

    def train_rows(self, advance: Advance) -> Iterator[Row]:
        """The rows to learn from."""
        return self._all(self.files()["train"], advance)

    def valid_rows(self, advance: Advance) -> Iterator[Row] | None:
        """The rows of the files to validate on."""
        return None if self.valid is None else self._all(self.files()["valid"], advance)

    def _all(self, paths: tuple[str, ...], advance: Advance) -> Iterator[Row]:
        for at, path in enumerate(paths):
            if at and self.joined:
                yield END
            yield from self.rows(path, advance)
