"""A file of tab-separated columns, two of which belong together: translations as Tatoeba gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Pairs, Row, RowForm
from unspool.data.text_files import TextFiles


@dataclass(frozen=True, kw_only=True)
class TSV(TextFiles):
    """One pair a line, in two of its columns."""

    source: int = 1
    """Which column is the source, counted from 1."""
    target: int = 2
    """Which column is the target, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(source=self.source, target=self.target)

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Pairs()

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        return columns(path, (self.source, self.target), self.max_line_bytes, advance)


def check_columns(**columns: int) -> None:
    """Settings that say which column is which."""
    for name, column in columns.items():
        if column < 1:
            raise ValueError(f"{name} is {column}; columns are counted from 1")


def columns(path: str, wanted: tuple[int, ...], limit: int, advance: Advance) -> Iterator[Row]:
    """These columns, counted from 1, of every line that is not blank."""
    for number, line in enumerate(read_lines(path, limit, advance), start=1):
        if not line.strip():
            yield ("",) * len(wanted)
            continue
        found = line.split("\t")
        if len(found) < max(wanted):
            raise ValueError(
                f"{path}, line {number} has {len(found)} tab-separated column{'s' * (len(found) > 1)}, but "
                f"column {max(wanted)} is wanted: {line[:60]!r}"
            )
        yield tuple(found[column - 1] for column in wanted)
