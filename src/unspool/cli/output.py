"""Where results go: standard output or a file, for people or as JSON lines."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from unspool.errors import escape_json, message_line, replace_control_characters
from unspool.io import name_file_in_errors

# The standard streams, fit for use: a closed one is replaced, and an error of writing says to what.
#
# A process may be started with any of its streams closed (`>&-`), which Python shows as None. The next file
# to be opened would then take its number, and be written to by whoever means to write to a stream.


STANDARD_OUTPUT = "standard output"


def tell(message: str) -> None:
    """One line on standard error. Whatever files and arguments it quotes, nothing in it steers a terminal."""
    print(f"unspool: {message_line(message)}", file=sys.stderr, flush=True)


def tell_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """A Python warning as such a line; it takes the place of `warnings.showwarning`."""
    tell(f"warning: {message}")


def tell_traceback() -> None:
    """Where the present error came from."""
    print(replace_control_characters(traceback.format_exc()), end="", file=sys.stderr)


class NamedFile(io.FileIO):
    """A file to write to whose errors name it, as Python's do only where a file is opened."""

    def __init__(self, file: str | int, label: str) -> None:
        super().__init__(file, "w", closefd=isinstance(file, str))
        self.label = label

    def write(self, data: Any) -> int:
        """As many bytes as went in."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, self.label) from error


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed: nothing can be written to it, and everything else goes on."""

    def write(self, text: str) -> NoReturn:  # noqa: ARG002
        """Say so."""
        raise OSError(errno.EBADF, "it is closed, so that there is nowhere to write to", STANDARD_OUTPUT)


def written_to(path: Path) -> TextIO:
    """The file at `path`, empty, flushed line by line."""
    raw = io.BufferedWriter(NamedFile(str(path), str(path)))
    return io.TextIOWrapper(raw, encoding="utf-8", newline="\n", line_buffering=True)


@contextmanager
def usable_streams() -> Iterator[None]:
    """The standard streams as a command needs them; afterwards they are as they were."""
    before = sys.stdin, sys.stdout, sys.stderr
    with open(os.devnull, "r+", encoding="utf-8") as nowhere:  # noqa: PTH123 — no path of a user's
        _occupy(nowhere.fileno())
        sys.stdin, sys.stderr = sys.stdin or nowhere, sys.stderr or nowhere
        sys.stdout = _named(sys.stdout)
        try:
            yield
        finally:
            _let_go(sys.stdout, nowhere.fileno())
            sys.stdin, sys.stdout, sys.stderr = before


def _occupy(nowhere: int) -> None:
    """Give the numbers of closed streams to the null device, so that no file can have them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(nowhere, number)


def _named(stdout: Any) -> Any:
    """Standard output, naming itself in its errors; a stand-in of a caller's stays as it is."""
    if stdout is None:
        return ClosedOutput()
    if not _is_plain(stdout):
        return stdout
    file = NamedFile(stdout.fileno(), STANDARD_OUTPUT)
    return io.TextIOWrapper(
        file if stdout.write_through else io.BufferedWriter(file),
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )


def _is_plain(stdout: Any) -> bool:
    """Whether this is the process's own standard output, and a file as the system knows them."""
    # Python gives an unbuffered stream (PYTHONUNBUFFERED) no buffer at all.
    buffer = getattr(stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return stdout is sys.__stdout__ and type(raw) is io.FileIO


def _let_go(stdout: TextIO, nowhere: int) -> None:
    """Write what is left. What cannot be written is dropped, or Python would try again as it leaves."""
    try:
        stdout.flush()
    except OSError:
        os.dup2(nowhere, 1)
        stdout.flush()


def check_output(path: Path | None) -> None:
    """Refuse, before any work, a place that cannot be written to."""
    if path is None:
        if not sys.stdout.writable():
            sys.stdout.write("")  # which says why
    elif path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder; name a file in it", str(path))
    elif not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO]:
    """The file at `path`, flushed as it grows; standard output where there is none."""
    if path is None:
        yield sys.stdout
    else:
        with written_to(path) as file:
            yield file


def shown(text: str, file: TextIO) -> str:
    """The text as it may be written to `file`: unchanged, but for control characters on a terminal."""
    return replace_control_characters(text) if file.isatty() else text


def json_line(record: dict[str, Any]) -> str:
    """One line of strict JSON: other numbers than JSON's become null, control characters escapes."""
    return escape_json(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False))


def _finite(found: Any) -> Any:
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    return [_finite(value) for value in found] if isinstance(found, (list, tuple)) else found


# A file that is written at the end: that it can be is found out at the beginning.


@contextmanager
def reserved(path: Path | None) -> Iterator[None]:
    """Fail now, not after the work, if `path` cannot be written to.

    Work that fails leaves no empty file, nor does a process that is killed.
    """
    if path is None or path.is_fifo() or path.is_char_device():  # to open a pipe would wait for its reader
        yield
        return
    there = path.exists()
    path.open("ab").close()
    if not there:
        path.resolve().unlink()
    try:
        with name_file_in_errors(path):
            yield
    finally:
        if not there and path.is_file() and path.stat().st_size == 0:
            path.unlink()


# A table of short cells: the first column to the left, the others to the right.


PIPED = 120
"""Columns where there is no terminal."""


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print it; what is too wide for the terminal is folded, and nothing is cut."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(replace_control_characters(cell) for cell in row))
    console = Console(markup=False)
    if not console.is_terminal and console.width < PIPED:
        console.width = PIPED
    console.print(table)


# How far a long command has come: a bar and an estimate on standard error, where that is a terminal.


@contextmanager
def counted(total: int, *, shown: bool) -> Iterator[Callable[..., None]]:
    """A function to call after each prompt that is done, or after several of them, with their number."""
    if not shown or not sys.stderr.isatty():
        yield lambda count=1: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda count=1: progress.advance(task, count)


STATUS = 128 + int(signal.SIGINT)
MESSAGE = "unspool: interrupted"


@contextmanager
def leaving_imports_at_once() -> Iterator[None]:
    """Within, Ctrl-C during an import ends the process; at any other time it raises KeyboardInterrupt.

    Ctrl-C, answered in one line whenever it comes.

    Python raises KeyboardInterrupt wherever it is. In the middle of an import that may be inside the C code
    of a library that is half there (torch aborts the process, numpy fails with errors of its own). An import
    is therefore not unwound: it has done nothing that would have to be undone, and the process leaves at
    once.
    """
    # Another handler is somebody's choice: nohup's is to ignore the signal.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _handle)
    except ValueError:  # only the main thread of a program receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _importing(frame):
        signal.default_int_handler(number, frame)
    with suppress(Exception):  # a stream may be closed, or be in the middle of something else
        sys.stdout.flush()
        print(MESSAGE, file=sys.stderr, flush=True)
    os._exit(STATUS)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
