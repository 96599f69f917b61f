"""Lines of UTF-8, one by one, however large the file is; what is not is named by file, line and byte.

A file that gzip has packed is unpacked on the way, whatever its name is.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

# How far a long reading has come: a bar with the time left, on a terminal only.


OnProgress = Callable[[int], None]
"""Called with the number of bytes (or rows) just read."""


def no_progress(_amount: int) -> None:
    """Shows nothing."""


@contextmanager
def progress_bar(what: str, total: int, show: bool) -> Iterator[OnProgress]:
    """A bar on standard error that `total` fills (0: nobody knows how much it is); none without `show`."""
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
            if waiting >= max(total / 500, 1000):  # the bar is too slow to be told about every line
                bar.advance(task, waiting)
                waiting = 0

        yield advance


_BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1_000_000
_GZIP = b"\x1f\x8b"
_PACKED = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""How files begin that other programs have packed."""


@contextmanager
def open_text(path: Path) -> Iterator[tuple[BufferedIOBase, BufferedIOBase]]:
    """The content of a file, unpacked if it is packed; and the file itself, to ask how far it was read."""
    with path.open("rb") as file:
        begins = file.peek(8)
        for begin, program in _PACKED.items():
            if begins.startswith(begin):
                raise ValueError(
                    f"{path} is packed by {program}: unpack it, or pack it by gzip, which is read"
                )
        try:
            yield gzip.GzipFile(fileobj=file) if begins.startswith(_GZIP) else file, file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is packed by gzip, and damaged ({error}): get it anew") from error


def read_lines(
    path: str | Path, limit: int = MAX_LINE_BYTES, advance: OnProgress = no_progress
) -> Iterator[str]:
    r"""The lines of a file without their ends (\n or \r\n)."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}: name a text file in UTF-8, one text a line")
    with open_text(path) as (content, file):
        number, before, told = 0, 0, 0
        while raw := content.readline(limit + 2):
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > limit:
                raise ValueError(
                    f"{path}, line {number} is longer than {limit:,} bytes: is it one text a line? If it "
                    "should be so long, raise max_line_bytes"
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
            raise ValueError(f"{path} is empty: there is no text in it")


def check_files(files: Mapping[str, Sequence[str]]) -> None:
    """FileNotFoundError for a file that is not there, with the setting that names it."""
    for name, paths in files.items():
        for path in paths:
            if not Path(path).is_file():
                what = "this is a folder: name its files" if Path(path).is_dir() else "there is no such file"
                raise FileNotFoundError(f"{name} = {path!r}: {what}")


def file_size(path: str | Path) -> int:
    """Bytes in a file; 0 where there is none, which `read_lines` complains about."""
    path = Path(path)
    return path.stat().st_size if path.is_file() else 0
