"""Pairs of text files whose lines belong together, for translation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from unspool.data.read import MAX_LINE_BYTES, read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Pairs, Row, RowForm
from unspool.data.split import HeldOut
from unspool.data.text_files import Paths, listed


@dataclass(frozen=True, kw_only=True)
class Parallel(HeldOut):
    """Line i of one file is the source of line i of the other."""

    source: Paths
    """The file of sources to learn from, or a list of files."""
    target: Paths
    """The file of their targets, or a list of as many files."""
    valid_source: Paths | None = None
    """The file of sources to validate on, or a list of files."""
    valid_target: Paths | None = None
    """The file of their targets, or a list of as many files."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.valid_source is None) != (self.valid_target is None):
            raise ValueError("only one of valid_source and valid_target is given: give both, or neither")
        files = self.files()
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if len(files.get(one, ())) != len(files.get(other, ())):
                raise ValueError(
                    f"{one} has {len(files[one])} files, but {other} has {len(files[other])}: each file of "
                    "sources needs one of targets"
                )

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """The files that are read, by the name of their setting."""
        names = ("source", "target", "valid_source", "valid_target")
        found = {name: listed(name, getattr(self, name)) for name in names}
        return {name: paths for name, paths in found.items() if paths}

    def train_rows(self, advance: Advance) -> Iterator[Row]:
        """The rows to learn from."""
        return self._all("source", "target", advance)

    def valid_rows(self, advance: Advance) -> Iterator[Row] | None:
        """The rows of the files to validate on."""
        return None if self.valid_source is None else self._all("valid_source", "valid_target", advance)

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Pairs()

    def _all(self, source: str, target: str, advance: Advance) -> Iterator[Row]:
        files = self.files()
        for one, other in zip(files[source], files[target], strict=True):
            yield from self._rows(one, other, advance)

    def _rows(self, source: str, target: str, advance: Advance) -> Iterator[Row]:
        sides = [read_lines(path, self.max_line_bytes, advance) for path in (source, target)]
        counts = [0, 0]
        for row in zip_longest(*sides):
            counts = [count + (side is not None) for count, side in zip(counts, row, strict=True)]
            if None not in row:
                yield row
        if counts[0] != counts[1]:
            raise ValueError(
                f"{source} has {counts[0]} lines, but {target} has {counts[1]}: line i of one must be the "
                "source of line i of the other"
            )
