"""The standard streams, fit for use: a closed one is replaced, and an error of writing says to what.

A process may be started with any of its streams closed (`>&-`), which Python shows as None. The next file to
be opened would then take its number, and be written to by whoever means to write to a stream.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from unspool.printable import message_line, printable

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
    print(printable(traceback.format_exc()), end="", file=sys.stderr)


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
