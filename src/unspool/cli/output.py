"""Where results go: standard output or a file, for people or as JSON lines."""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from unspool.cli.streams import written_to
from unspool.printable import escape_json, printable


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
    return printable(text) if file.isatty() else text


def json_line(record: dict[str, Any]) -> str:
    """One line of strict JSON: other numbers than JSON's become null, control characters escapes."""
    return escape_json(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False))


def _finite(found: Any) -> Any:
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {key: _finite(value) for key, value in found.items()}
    return [_finite(value) for value in found] if isinstance(found, (list, tuple)) else found
