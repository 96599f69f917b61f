"""Folders that appear whole or not at all, whenever the process is killed or the power fails.

    write beside it → flush every file to the disk → rename

To replace a folder takes two renames, and between them its name is free. The old one then waits under a name
that `present` knows, so that a reader always finds one of the two.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = ".unspool-unfinished-"
_ABANDONED_AFTER = 24 * 3600.0


def present(path: Path) -> Path:
    """Where the folder's last complete content is: itself, or what a killed replacement has set aside."""
    return _aside(path) if not path.exists() and _aside(path).exists() else path


@contextmanager
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """An empty folder to write to: it becomes `path` at the end of the block, or vanishes if the block fails.

    If `path` exists already: FileExistsError. With `replace` it is replaced, unless it holds a file that the
    new one has not.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 — unlike resolve(), it leaves a link's name alone
    if not replace:
        _refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    fresh = path.with_name(f".{path.name}{_UNFINISHED}{secrets.token_hex(8)}")
    fresh.mkdir()
    try:
        yield fresh
        _flush(fresh)
        if replace:
            _set_aside(path, fresh)
        try:
            fresh.rename(path)
        except OSError:
            _refuse_existing(path)
            raise
        _flush_names(path.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(_aside(path), ignore_errors=True)


def _aside(path: Path) -> Path:
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
    shutil.rmtree(_aside(path), ignore_errors=True)
    path.rename(_aside(path))


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    _flush_names(folder)


def _flush_names(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot flush a folder
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(parent: Path) -> None:
    """Remove what killed processes have left, once it is too old to belong to a living one."""
    for left in parent.glob(f".*{_UNFINISHED}*"):
        try:
            abandoned = time.time() - left.stat().st_mtime > _ABANDONED_AFTER
        except FileNotFoundError:  # another process was quicker
            continue
        if abandoned:
            shutil.rmtree(left, ignore_errors=True)
