"""The user's cache folder: what is there was made from something else, and may be deleted at any time.

The environment variable UNSPOOL_CACHE names another folder than the system's.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import platformdirs

SPARE_BYTES = 1 << 29
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


def check_room(folder: Path, size: int) -> None:
    """OSError where the disk of a folder, which is made, has no room for so many bytes and some to spare."""
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, size + SPARE_BYTES
    if free < needed:
        raise OSError(f"{free >> 20} MiB are free in {folder}, {needed >> 20} MiB are needed")
