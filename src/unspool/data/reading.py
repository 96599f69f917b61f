"""Read lines of UTF-8 files of any size, plain or gzip. Errors name file, line and byte."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

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


def file_size(path: str | Path) -> int:
    """Return the bytes of a file; 0 if it does not exist."""
    path = Path(path)
    return path.stat().st_size if path.is_file() else 0
