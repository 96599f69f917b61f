"""Output of the commands: messages, files, JSON lines, tables, progress bars, and safe standard streams."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from unspool.errors import Note, escape_json, message_line, replace_control_characters
from unspool.io import name_file_in_errors

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from unspool.decode.output import Piece
    from unspool.interfaces import FinishReason

PIPE_WIDTH = 120
"""Columns of a table if standard output is not a terminal."""
INTERRUPTED = 128 + int(signal.SIGINT)


def print_message(message: str) -> None:
    """Print one line to standard error, without control characters that a terminal would obey."""
    print(f"unspool: {message_line(message)}", file=sys.stderr, flush=True)


def print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    print_message(str(message) if category is Note else f"warning: {message}")


def print_traceback() -> None:
    print(replace_control_characters(traceback.format_exc()), end="", file=sys.stderr)


@contextmanager
def status_line(message: str) -> Iterator[None]:
    """Show a message on standard error during the work, if it is a terminal; erase it afterwards."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(message_line(message))
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


# ---- standard streams


@contextmanager
def safe_streams() -> Iterator[None]:
    """Replace closed standard streams (`>&-`), which Python shows as None, by the null device.

    Otherwise the next file that is opened would get the stream's number, and print() would write into it.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    with open(os.devnull, "r+", encoding="utf-8") as null:  # noqa: PTH123
        _reserve_stream_numbers(null.fileno())
        sys.stdin, sys.stdout, sys.stderr = (stream or null for stream in before)
        try:
            yield
        finally:
            _flush(sys.stdout, null.fileno())
            sys.stdin, sys.stdout, sys.stderr = before


def _reserve_stream_numbers(null: int) -> None:
    """Point closed file descriptors 0 to 2 at the null device, so that no other file gets them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)


def _flush(stdout: TextIO, null: int) -> None:
    """Flush; drop text that cannot be written, because Python would try again at exit."""
    try:
        stdout.flush()
    except OSError:
        os.dup2(null, 1)
        stdout.flush()


@contextmanager
def exit_during_imports() -> Iterator[None]:
    """Let Ctrl-C during an import end the process at once; at any other time it raises KeyboardInterrupt.

    An exception inside a half-imported C library can abort the process (torch) or become another error
    (numpy). An import changes nothing that must be undone, so leaving at once is safe.
    """
    # Another handler was set on purpose: nohup ignores the signal.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _handle_interrupt)
    except ValueError:  # signals reach the main thread only
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    with suppress(Exception):  # a stream may be closed, or in the middle of a write
        sys.stdout.flush()
        print("unspool: interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


# ---- files


def check_output(path: Path | None, source: Path | None = None) -> None:
    """Raise before any work if the file (None: standard output) cannot be written to, or is `source`."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", str(path))
    _check_folder(path)
    if source is not None and path.resolve() == source.resolve():
        raise ValueError(f"--output {path} would overwrite the input; give another file")


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """The file at `path`, flushed after each line; standard output if it is None."""
    if path is None:
        yield sys.stdout
    else:
        with name_file_in_errors(path), path.open("w", encoding="utf-8", newline="\n", buffering=1) as file:
            yield file


@contextmanager
def reserve_file(path: Path | None) -> Iterator[None]:
    """Raise before the work if `path` cannot be written to. Work that fails does not leave an empty file."""
    if path is None:
        yield
        return
    if path.is_fifo() or path.is_char_device():  # opening a pipe waits for its reader
        with name_file_in_errors(path):
            yield
        return
    _check_folder(path)
    existed = path.exists()
    path.open("ab").close()
    if not existed:
        path.resolve().unlink()
    try:
        with name_file_in_errors(path):
            yield
    finally:
        if not existed and path.is_file() and path.stat().st_size == 0:
            path.unlink()


# ---- text, JSON, tables, progress


def terminal_text(text: str, file: TextIO) -> str:
    """The text; if `file` is a terminal, without control characters."""
    return replace_control_characters(text) if file.isatty() else text


def write_pieces(pieces: Iterable[Piece], file: TextIO) -> FinishReason | None:
    """Write each piece of a text as soon as it is final, then a line break; returns the finish reason."""
    finish_reason: FinishReason | None = None
    has_text = False
    try:
        for piece in pieces:
            file.write(terminal_text(piece.text, file))
            file.flush()
            finish_reason, has_text = piece.finish_reason, True
    except BaseException:
        if has_text:  # end the line of an interrupted text
            file.write("\n")
        raise
    file.write("\n")
    file.flush()
    return finish_reason


def json_line(record: dict[str, Any]) -> str:
    """One line of strict JSON: NaN and infinities become null, control characters are escaped."""
    return escape_json(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False))


def print_json(record: dict[str, Any]) -> None:
    print(json_line(record), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Table:
    """A table; the first column and those in `left` are left-aligned, long cells are folded."""

    names: Sequence[str]
    rows: Sequence[Sequence[str | Text]]
    left: Sequence[str] = ()

    @classmethod
    def of(cls, columns: Mapping[str, str], items: Iterable[Any], left: Sequence[str] = ()) -> Table:
        """A row per item; `columns` maps the name of a column to a format string of `row`, the item."""
        return cls(
            list(columns), [[cell.format(row=item) for cell in columns.values()] for item in items], left
        )

    def print(self) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for column, name in enumerate(self.names):
            justify = "right" if column and name not in self.left else "left"
            table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in self.rows:
            table.add_row(
                *(replace_control_characters(cell) if isinstance(cell, str) else cell for cell in row)
            )
        console().print(table)


def console() -> Console:
    """A rich console on standard output that is wide enough for a table if it is not a terminal."""
    from rich.console import Console

    out = Console(markup=False)
    if not out.is_terminal:
        out.width = max(out.width, PIPE_WIDTH)
    return out


@dataclass(frozen=True)
class Result:
    """The result of a measurement: for --json, as text, and drawn."""

    records: Iterable[dict[str, Any]]
    """One line of JSON each."""
    text: Iterable[str | Table]
    draw: Callable[[Path], None] | None = None
    status: int = 0


def present(measure: Callable[[Namespace], Result | int], args: Namespace) -> int:
    """Run the function of a command, print its Result, and return the exit status."""
    text, figure = getattr(args, "text", None), getattr(args, "figure", None)
    if isinstance(text, Path) and not text.is_dir():
        text.open("rb").close()  # raises before the model is loaded
    if figure is not None:
        from unspool.plots.canvas import figure_path

        figure_path(figure)  # refuses other formats
    with reserve_file(figure):
        result = measure(args)
        if isinstance(result, int):
            return result
        if figure is not None and result.draw is not None:
            result.draw(figure)
            print_message(f"wrote {figure}")
    if args.json:
        for record in result.records:
            print_json(record)
    else:
        for part in result.text:
            part.print() if isinstance(part, Table) else print(part)
    return result.status


@contextmanager
def progress_bar(
    total: float | None = None, description: str = "prompts", *, shown: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a progress bar with the remaining time on standard error, if it is a terminal.

    Yields rich's `Progress.update` of the bar, with `advance` or `completed`, `total` and `description`.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Results are printed to standard output meanwhile: the bar must not capture them.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        yield partial(progress.update, progress.add_task(description, total=total))
