"""Rows of training data: reading lines of files, sources of rows (`Data`), validation split and row formats.

Files are UTF-8 of any size, plain or gzip. Errors name file, line and byte.
"""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unspool.arguments import Checked, integer, number
from unspool.data.random_numbers import random_permutation
from unspool.tokenization import Tokenizer

if TYPE_CHECKING:
    from unspool.data.batch import Ragged
    from unspool.data.examples import Examples

OnProgress = Callable[[int], None]
"""Called with the number of bytes (or rows) just read."""


def no_progress(_amount: int) -> None:
    """Ignore progress."""


@contextmanager
def progress_bar(what: str, total: int, show: bool) -> Iterator[OnProgress]:
    """Show a progress bar on standard error, if `show`. A `total` of 0 means unknown."""
    if not show:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total or None)
        waiting = 0

        def advance(amount: int) -> None:
            nonlocal waiting
            waiting += amount
            if waiting >= max(total / 500, 1000):  # updating the bar for every line is slow
                bar.advance(task, waiting)
                waiting = 0

        yield advance


_BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1_000_000
_GZIP = b"\x1f\x8b"
_PACKED = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of other compressed files."""


@contextmanager
def open_text(path: Path) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """Open a file, decompressed if it is gzip; yield the content, and the raw file for its position."""
    with path.open("rb") as file:
        begins = file.peek(8)
        for begin, program in _PACKED.items():
            if begins.startswith(begin):
                raise ValueError(f"{path} is compressed by {program}: decompress it, or use gzip")
        try:
            yield gzip.GzipFile(fileobj=file) if begins.startswith(_GZIP) else file, file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}): get a new copy") from error


def read_lines(
    path: str | Path, limit: int = MAX_LINE_BYTES, advance: OnProgress = no_progress
) -> Iterator[str]:
    r"""Yield the lines of a file without their ends (\n or \r\n)."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}: give a UTF-8 text file, one text per line")
    with open_text(path) as (content, file):
        number, before, told = 0, 0, 0
        while raw := content.readline(limit + 2):
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > limit:
                raise ValueError(
                    f"{path}, line {number} is longer than {limit:,} bytes: write one text per line, "
                    "or raise max_line_bytes"
                )
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number} is not valid UTF-8: 0x{line[error.start]:02X} is byte "
                    f"{error.start + 1} of the line, {before + error.start + 1} of the file; convert the "
                    "file to UTF-8"
                ) from None
            yield text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
            before += len(raw)
            done = before if content is file else file.tell()
            advance(done - told)
            told = done
        if not before:
            raise ValueError(f"{path} is empty: give a file with text")


def check_files(files: Mapping[str, Sequence[str]]) -> None:
    """Raise FileNotFoundError for a missing file, with the setting that names it."""
    for name, paths in files.items():
        for path in paths:
            if not Path(path).is_file():
                what = "this is a folder: name its files" if Path(path).is_dir() else "there is no such file"
                raise FileNotFoundError(f"{name} = {path!r}: {what}")


Row = tuple[str, ...]
END_OF_TEXT: Row = ()
"""Separates the texts of joined rows."""


@dataclass(frozen=True)
class RowFormat(ABC):
    """The format of a row: columns that train a vocabulary, encoding, and resulting examples."""

    labels: tuple[str, ...] = ()
    """The labels of a classifier or tagger; () for generated text."""
    joined: bool = False
    """True if all rows up to END_OF_TEXT are one text."""

    columns: ClassVar[int] = 2
    """Columns of numbers that `encode` returns."""
    adds_bos: ClassVar[bool] = False
    """`Tokenizer.add_bos` of a vocabulary learnt from this data: True if prompts begin with BOS."""

    def texts(self, row: Row) -> Sequence[str]:
        """Return the columns that train a vocabulary."""
        return row

    def labels_of(self, row: Row) -> Sequence[str]:  # noqa: ARG002
        return ()

    @abstractmethod
    def encode(self, rows: Sequence[Row], tokenizer: Tokenizer) -> Sequence[Sequence[list[int]]]:
        """Encode each column of each row."""

    @abstractmethod
    def examples(self, columns: Sequence[Ragged]) -> Examples:
        """Return the training examples."""


class Data(ABC):
    """A source of rows: a frozen dataclass."""

    row_format: ClassVar[RowFormat]
    """The format of the rows, unless `form` is overridden."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Return setting → paths of the files that are read."""
        return {}

    @abstractmethod
    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the training rows, always the same."""

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:  # noqa: ARG002
        """Yield the validation rows; None if they are held out from the training rows."""
        return None

    def form(self, rows: Iterable[Row]) -> RowFormat:  # noqa: ARG002
        return self.row_format

    @property
    def holds_out(self) -> bool:
        """True if any training row is held out for validation."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:  # noqa: ARG002
        """Return a mask of `count` training rows: True for those held out."""
        return np.zeros(count, dtype=np.bool_)


@runtime_checkable
class OwnTokenizer(Protocol):
    """Data with a vocabulary, so that a recipe does without [tokenizer]."""

    def new_tokenizer(self) -> Tokenizer: ...


@dataclass(frozen=True, kw_only=True)
class HeldOut(Checked, Data):
    """Data of which a part may be held out for validation."""

    valid_share: float = number(0.0, at_least=0, below=1)
    """Share of the rows held out for validation, from 0 to 1."""
    valid_lines: int = integer(0, at_least=0)
    """Number of rows held out for validation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.valid_share and self.valid_lines:
            raise ValueError("valid_share and valid_lines are both given: choose one of them")

    @property
    def holds_out(self) -> bool:
        return bool(self.valid_share or self.valid_lines)

    @property
    def holds_out_last(self) -> bool:
        """True if the last rows are held out instead of random ones, because neighbours belong together."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        mask = super().held(count, seed)
        if not self.holds_out:
            return mask
        wanted = self.valid_lines or max(1, round(self.valid_share * count))
        if wanted >= count:
            raise ValueError(
                f"{wanted} rows are to be held out for validation, but there are only {count}: hold out fewer"
            )
        order = np.arange(count)[::-1] if self.holds_out_last else random_permutation(count, seed)
        mask[order[:wanted]] = True
        return mask
