"""The user's cache folder: what is there was made from something else, and may be deleted at any time.

The environment variable UNSPOOL_CACHE names another folder than the system's.
"""

from __future__ import annotations

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


def check_room(folder: Path, size: int) -> None:
    """OSError where the disk of a folder, which is made, has no room for so many bytes and some to spare."""
    folder.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(folder).free, size + SPARE_BYTES
    if free < needed:
        raise OSError(f"{free >> 20} MiB are free in {folder}, {needed >> 20} MiB are needed")
