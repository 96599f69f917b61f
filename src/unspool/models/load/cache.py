"""Converted models, kept as run folders in the user's cache folder and found by the content of their source.

    cache folder / converted / ⟨sha256 of the file⟩-⟨version⟩ /   a run folder, and checks.json
                 / seen / ⟨sha256 of path, size, times, inode⟩    the file's sha256, to spare reading it again

An entry appears whole or not at all, however many processes convert at once. Each of its files has a
fingerprint in checks.json; an entry that does not match is converted anew. Where nothing can be written (a
full disk, a read-only folder) the model is used unkept, and the logger `unspool.models.load.cache` says so at
level INFO.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from unspool.files.atomic import discard, new_file, new_folder
from unspool.files.cache import cache_folder, check_room
from unspool.models.load.folder import read_files, write_files
from unspool.models.transformer_lm import TransformerLM
from unspool.text.json_file import read_object

VERSION = 1
"""Of the conversion. Raise it whenever the same file would be converted to something else."""

_CHECKS = "checks.json"
_PAGE = 4096
_SETTLED_NS = 2_000_000_000
"""A file changed more recently than this may change again without its times showing it."""

_log = logging.getLogger(__name__)


def through_cache(path: Path, convert: Callable[[Path], TransformerLM]) -> TransformerLM:
    """The model that `convert` makes of the file, from the cache if it was made before."""
    before = _identity(path)
    entry = cache_folder() / "converted" / f"{_content(path, before)}-{VERSION}"
    model = _kept(entry)
    if model is None:
        model = convert(path)
        if _identity(path) != before:
            raise ValueError(f"{path} was changed while it was read; load it again")
        _keep(model, entry)
    return model


def fingerprint(path: Path) -> str:
    """A checksum at the speed of memory: sha256 of the sums of all pages. It finds accidents, not attacks."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    if size:
        data = np.memmap(path, np.uint8, mode="r")
        whole = size // _PAGE * _PAGE
        sums = data[:whole].view(np.uint64).reshape(-1, _PAGE // 8).sum(axis=1)
        digest.update(sums.tobytes() + data[whole:].tobytes())
    return digest.hexdigest()


# ── entries ───────────────────────────────────────────────────────────────────────────────────────


def _kept(entry: Path) -> TransformerLM | None:
    if not entry.is_dir():
        return None
    try:
        _verify(entry)
        model: TransformerLM = read_files(entry)
        return model
    except (OSError, ValueError) as error:
        _log.info("%s is damaged and will be converted anew: %s", entry, error)
        with suppress(OSError):  # what cannot be removed is not used, either
            discard(entry)
        return None


def _verify(entry: Path) -> None:
    checks = read_object(entry / _CHECKS)
    if checks.keys() != {file.name for file in entry.iterdir()} - {_CHECKS}:
        raise ValueError("a file is missing, or one too many is there")
    for name, expected in checks.items():
        if fingerprint(entry / name) != expected:
            raise ValueError(f"{name} is not what was written")


def _keep(model: TransformerLM, entry: Path) -> None:
    try:
        check_room(entry.parent, sum(tensor.nbytes for tensor in model.state_dict().values()))
        with new_folder(entry) as folder:
            write_files(model, folder)
            checks = {file.name: fingerprint(file) for file in folder.iterdir()}
            (folder / _CHECKS).write_text(json.dumps(checks), encoding="utf-8")
    except (OSError, SafetensorError) as error:  # FileExistsError: another process was quicker
        _log.info("the converted model is not kept in %s: %s", entry.parent, error)


# ── what was seen ─────────────────────────────────────────────────────────────────────────────────


def _identity(path: Path) -> str:
    """Changes whenever the file's content does: a file's ctime cannot be set back as its mtime can."""
    stat = path.stat()
    times = f"{stat.st_mtime_ns} {stat.st_ctime_ns}"
    return f"{stat.st_dev} {stat.st_ino} {stat.st_size} {times} {path.resolve()}"


def _content(path: Path, identity: str) -> str:
    """sha256 of the file, remembered by its identity."""
    note = cache_folder() / "seen" / hashlib.sha256(identity.encode()).hexdigest()
    try:
        known = note.read_text(encoding="ascii")
        if re.fullmatch("[0-9a-f]{64}", known):
            return known
    except (OSError, ValueError):
        pass
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    stat = path.stat()
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) > _SETTLED_NS and _identity(path) == identity:
        _remember(note, digest)
    return digest


def _remember(note: Path, digest: str) -> None:
    try:
        with new_file(note) as fresh:
            fresh.write_text(digest, encoding="ascii")
    except OSError as error:
        _log.info("%s cannot be written: %s", note, error)
