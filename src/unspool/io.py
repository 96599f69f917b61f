"""Atomic writes of files and folders, the cache folder, and reading with a size limit.

    write to a temporary name → fsync → rename → fsync the folder

A rename replaces a file in one step. Replacing a folder takes two: between them the old one has a name that
`complete_folder` knows, so that a reader always finds one of the two. Files left by killed processes are
removed by the next writer, a day later.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

MAX_SETTINGS_BYTES = 1 << 26
"""Maximum size of settings: a recipe, a config.json, a JSON schema."""
MAX_TEXT_BYTES = 1 << 30
"""Maximum size of a file of prompts or outputs."""


def read_bounded(path: Path, most: int = MAX_SETTINGS_BYTES) -> bytes:
    """Read a file; ValueError if it has more than `most` bytes."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > most else file.read(most + 1)  # devices report size 0 and may be endless
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
    """Add the file name to write errors, such as a full disk; `written` is its temporary name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(written), written):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    except Exception as error:
        # Older versions of safetensors write "Os { code: 28, …", newer ones "(os error 28)".
        number = re.search(r"(?:\(os error |Os \{ code: )(\d+)", str(error))
        if type(error).__name__ != "SafetensorError" or number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


_UNFINISHED = ".unspool-unfinished-"
_ABANDONED_AFTER = 24 * 3600.0
_CHUNK = 1 << 17


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` if the block succeeds."""
    with temporary_sibling(path) as fresh:
        yield fresh
        fsync_path(fresh)
        fresh.replace(path)
        fsync_folder(path.parent)


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` if the block succeeds.

    FileExistsError if `path` exists; with `replace`, only if it contains files that the new folder does not.
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
    """Return the complete folder: the path itself, or the old folder of an interrupted replacement."""
    return _previous_folder(path) if not path.exists() and _previous_folder(path).exists() else path


@contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """Yield a free temporary name next to `path`; it is removed after the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    fresh = path.with_name(f".{path.name}{_UNFINISHED}{secrets.token_hex(8)}")
    try:
        with name_file_in_errors(path, fresh):
            yield fresh
    finally:
        _remove(fresh)


def rename_folder(fresh: Path, path: Path) -> None:
    """Rename a temporary folder to `path`; FileExistsError if that exists."""
    fsync_path(fresh)
    try:
        fresh.rename(path)
    except OSError:
        _refuse_existing(path)
        raise
    fsync_folder(path.parent)


def checksum(path: Path, zeroed: tuple[int, int] = (0, 0)) -> str:
    """Return the CRC-32 of a file as hexadecimal; bytes from `zeroed[0]` to `zeroed[1]` are read as "0"."""
    found, place = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            begin, end = (min(max(edge - place, 0), len(chunk)) for edge in zeroed)
            if begin < end:
                chunk = chunk[:begin] + b"0" * (end - begin) + chunk[end:]
            found = zlib.crc32(chunk, found)
            place += len(chunk)
    return f"{found:08x}"


def remove_folder(folder: Path) -> None:
    """Remove a folder atomically: rename it first."""
    with temporary_sibling(folder) as gone:
        folder.rename(gone)


def remove_abandoned(folder: Path, older: float = _ABANDONED_AFTER) -> None:
    """Remove temporary files of killed processes that are older than `older` seconds."""
    for left in folder.glob(f".*{_UNFINISHED}*"):
        with suppress(FileNotFoundError):  # another process removed it
            if time.time() - left.lstat().st_mtime >= older:
                _remove(left)


def fsync_path(path: Path) -> None:
    """Flush a file, or all files of a folder, to the disk."""
    if path.is_dir():
        for entry in path.iterdir():
            fsync_path(entry)
        fsync_folder(path)
    else:
        with path.open("rb+") as file:  # Windows can flush only writable files
            os.fsync(file.fileno())


def fsync_folder(folder: Path) -> None:
    """Flush the file names of a folder to the disk."""
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


MIN_FREE_BYTES = 1 << 29


def cache_folder() -> Path:
    """Return the cache folder, UNSPOOL_CACHE or the system's. It may be deleted at any time."""
    chosen = os.environ.get("UNSPOOL_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("unspool", appauthor=False)


def private_folder(path: Path) -> Path:
    """Create a folder for this user; PermissionError if other users can write to it or replace it.

    Its content is trusted. Others can replace a folder if they can write to one above it, unless that one is
    sticky, as /tmp is. New folders above it are private; existing ones may be writable by the user's group.
    """
    path = path.absolute()
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid"):  # Windows protects the folders of users differently
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "the folder belongs to another user", str(path))
        if found.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "other users may write into the folder: chmod go-w", str(path))
        for parent in (*path.parents, *path.resolve().parents):
            found = parent.stat()
            by_others = found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid != os.getgid())
            if by_others and not found.st_mode & stat.S_ISVTX:
                raise PermissionError(
                    errno.EPERM, f"other users may replace the folder: chmod go-w {parent}", str(path)
                )
    return path


def check_disk_space(folder: Path, size: int) -> None:
    """Raise OSError if the disk of a folder lacks space for `size` bytes and MIN_FREE_BYTES."""
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, size + MIN_FREE_BYTES
    if free < needed:
        raise OSError(f"{free >> 20} MiB are free in {folder}, {needed >> 20} MiB are needed")
