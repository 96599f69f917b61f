"""Files that are there whole or not at all, the cache folder, and files that are read up to a limit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS_BYTES = 1 << 26
"""The largest file of settings that is read: a recipe, a config.json, a JSON schema."""
TEXT_BYTES = 1 << 30
"""The largest file of prompts or outputs that is read at once."""


def read_bounded(path: Path, most: int = SETTINGS_BYTES) -> bytes:
    """The content of a file; ValueError for one of more than `most` bytes, before it is in memory."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > most else file.read(most + 1)  # a device has no size, and may have no end
    if size > most or len(content) > most:
        raise ValueError(f"{path} has more than {most >> 20} MiB, the most that is read here")
    return content


@contextmanager
def named_errors(path: Path, written: Path | None = None) -> Iterator[None]:
    """Name the file in errors of writing it: Python's and safetensors' own do not, if the disk is full.

    `written` is the name that it has until it is whole.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(written), written):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if type(error).__name__ != "SafetensorError" or number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
