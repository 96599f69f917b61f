"""Files with one JSON object a line, of which some fields are wanted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path


def json_lines(path: Path, keys: tuple[str, ...], wanted: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """File and line, and the strings of these fields, of every line that is not blank; other fields may stay.

    `wanted` is how such a line looks, for errors.
    """
    for number, line in enumerate(split_lines(decoded(path)), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON ({error}); expected {wanted}") from None
        if not isinstance(record, dict) or not all(isinstance(record.get(key), str) for key in keys):
            raise ValueError(f"{where}: expected {wanted}, found {line[:60]}")
        yield where, tuple(record[key] for key in keys)


def split_lines(content: str) -> list[str]:
    """The lines of a text, whichever of \\n, \\r\\n and \\r ends them."""
    # Not splitlines(): a text may hold U+2028 and its kin.
    return re.split(r"\r\n|\n|\r", content)


def decoded(path: Path) -> str:
    """The content of a file that is UTF-8, with or without a byte-order mark."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
