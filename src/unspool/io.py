"""Files that are there whole or not at all, the cache folder, and files that are read up to a limit."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

MAX_SETTINGS_BYTES = 1 << 26
"""The largest file of settings that is read: a recipe, a config.json, a JSON schema."""
MAX_TEXT_BYTES = 1 << 30
"""The largest file of prompts or outputs that is read at once."""


def read_bounded(path: Path, most: int = MAX_SETTINGS_BYTES) -> bytes:
    """The content of a file; ValueError for one of more than `most` bytes, before it is in memory."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > most else file.read(most + 1)  # a device has no size, and may have no end
    if size > most or len(content) > most:
        raise ValueError(f"{path} has more than {most >> 20} MiB, the most that is read here")
    return content


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError if the file holds anything else."""
    content = read_bounded(path)
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits is a ValueError, too
        raise ValueError(f"{path} is not valid JSON ({error}); fetch or write the file again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


@contextmanager
def name_file_in_errors(path: Path, written: Path | None = None) -> Iterator[None]:
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


# Files and folders that appear whole or not at all, whenever the process is killed or the power fails.
#
#     write beside it → flush to the disk → rename → flush the name
#
# A rename puts a file in the place of another in one step. To replace a folder takes two, and between them
# its name is free: the old one then waits under a name that `present` knows, so that a reader always finds
# one of the two. What a killed process has left beside is removed by the next that writes there, a day later.
#
# `checksum` tells whether a file is still what was written.


_UNFINISHED = ".unspool-unfinished-"
_ABANDONED_AFTER = 24 * 3600.0
_CHUNK = 1 << 17


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A name to write a file to: it takes the place of `path` at the end of the block, or vanishes if the
    block fails."""
    with temporary_sibling(path) as fresh:
        yield fresh
        fsync_path(fresh)
        fresh.replace(path)
        fsync_folder(path.parent)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """An empty folder to write to: it becomes `path` at the end of the block, or vanishes if the block fails.

    If `path` exists already: FileExistsError. With `replace` it is replaced, unless it holds a file that the
    new one has not.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 — unlike resolve(), it leaves a link's name alone
    if not replace:
        _refuse_existing(path)
    with temporary_sibling(path) as fresh:
        fresh.mkdir()
        yield fresh
        if replace:
            _set_aside(path, fresh)
        rename_folder(fresh, path)
    shutil.rmtree(_previous_folder(path), ignore_errors=True)


def complete_folder(path: Path) -> Path:
    """Where the folder's last complete content is: itself, or what a killed replacement has set aside."""
    return _previous_folder(path) if not path.exists() and _previous_folder(path).exists() else path


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """A free name in the folder of `path`, which is made if it must be; what is there in the end goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    fresh = path.with_name(f".{path.name}{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        with name_file_in_errors(path, fresh):
            yield fresh
    finally:
        _remove(fresh)


def rename_folder(fresh: Path, path: Path) -> None:
    """Give a folder that was written beside `path` this name; FileExistsError where another one has it."""
    fsync_path(fresh)
    try:
        fresh.rename(path)
    except OSError:
        _refuse_existing(path)
        raise
    fsync_folder(path.parent)


def checksum(path: Path, zeroed: tuple[int, int] = (0, 0)) -> str:
    """CRC-32 of a file in eight hexadecimal digits; bytes from `zeroed[0]` to `zeroed[1]` are read as "0".

    It finds every flipped byte, and is the fastest check in the standard library.
    """
    found, place = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            begin, end = (min(max(it - place, 0), len(chunk)) for it in zeroed)
            if begin < end:
                chunk = chunk[:begin] + b"0" * (end - begin) + chunk[end:]
            found = zlib.crc32(chunk, found)
            place += len(chunk)
    return f"{found:08x}"


def remove_folder(folder: Path) -> None:
    """Remove a folder so that nobody finds the half of it."""
    with temporary_sibling(folder) as gone:
        folder.rename(gone)


def remove_abandoned(folder: Path, older: float = _ABANDONED_AFTER) -> None:
    """Remove what killed processes have left, once it is too old (in seconds) to belong to a living one."""
    for left in folder.glob(f".*{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # another process was quicker
            if time.time() - left.lstat().st_mtime >= older:
                _remove(left)


def fsync_path(path: Path) -> None:
    """Onto the disk: a file, or all that a folder holds."""
    if path.is_dir():
        for entry in path.iterdir():
            fsync_path(entry)
        fsync_folder(path)
    else:
        with path.open("rb+") as file:  # Windows flushes nothing that cannot be written to
            os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """The names of the files in a folder onto the disk."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot flush a folder
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _previous_folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.unspool-previous")


def _refuse_existing(path: Path) -> None:
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise FileExistsError(f"{path} exists already; remove it or choose another name")


def _set_aside(path: Path, fresh: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise FileExistsError(f"{path} is a file, not a folder; choose another name")
    foreign = sorted({entry.name for entry in path.iterdir()} - {entry.name for entry in fresh.iterdir()})
    if foreign:
        raise FileExistsError(
            f"{path} holds {', '.join(foreign[:3])}, which would be lost; remove it or choose another name"
        )
    shutil.rmtree(_previous_folder(path), ignore_errors=True)
    path.rename(_previous_folder(path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# The user's cache folder: what is there was made from something else, and may be deleted at any time.
#
# The environment variable UNSPOOL_CACHE names another folder than the system's.


MIN_FREE_BYTES = 1 << 29
"""Left free on the disk: a cache should not be what fills it."""


def cache_folder() -> Path:
    """Where it is; it need not exist."""
    chosen = os.environ.get("UNSPOOL_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("unspool", appauthor=False)


def private_folder(path: Path) -> Path:
    """The folder, made for this user alone if it is missing; OSError if another user could write into it.

    What is read from it is trusted. A folder that a group or everybody may write to is not.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):  # Windows keeps a user's folders apart by other means
        found = path.stat()
        if found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "the folder belongs to another user", str(path))
        if found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "other users may write into the folder: chmod go-w", str(path))
    return path


def check_disk_space(folder: Path, size: int) -> None:
    """OSError where the disk of a folder, which is made, has no room for so many bytes and some to spare."""
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, size + MIN_FREE_BYTES
    if free < needed:
        raise OSError(f"{free >> 20} MiB are free in {folder}, {needed >> 20} MiB are needed")
