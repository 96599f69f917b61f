"""Checkpoints: written atomically, verified by hashes when read.

    checkpoints/00000500/   model.safetensors, config.json, tokenizer…   a model that us.load reads
                            adapters.safetensors                         if the run trains adapters
                            memory.safetensors                           state of optimizer and hooks
                            checkpoint.json                              progress; size and hash of every file
    last.json               the name of the newest one

    write to a temporary folder → rename → replace last.json → remove old checkpoints

Nothing is pickled. A damaged checkpoint is skipped in favour of the one before.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from unspool import io
from unspool.io import new_file, new_folder, remove_folder
from unspool.models.loading.lora_file import ADAPTERS

FOLDER, LAST, ABOUT, STATE, WEIGHTS = (
    "checkpoints",
    "last.json",
    "checkpoint.json",
    "memory.safetensors",
    "model.safetensors",
)


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint."""

    path: Path
    about: Mapping[str, Any]

    @property
    def update(self) -> int:
        """Number of updates before it."""
        return int(self.path.name)

    def weights(self) -> dict[str, Tensor]:
        """Load the model's tensors."""
        return load_file(self.path / WEIGHTS)

    def adapters(self) -> dict[str, Tensor] | None:
        """Load the adapters' tensors; None without adapters."""
        file = self.path / ADAPTERS
        return load_file(file) if file.is_file() else None

    def training_state(self) -> dict[str, Tensor]:
        """Load the tensors of optimizer and hooks."""
        return load_file(self.path / STATE)


def write_checkpoint(
    run: Path,
    update: int,
    about: Mapping[str, Any],
    state: Mapping[str, Tensor],
    write_model: Callable[[Path], None],
) -> Path:
    """Write a checkpoint; `write_model` puts the model's files into a folder."""
    path = run / FOLDER / f"{update:08d}"
    with _explain_disk_errors(run):
        if path.exists():  # a damaged one
            remove_folder(path)
        with new_folder(path) as fresh:
            write_model(fresh)
            save_file(dict(state), fresh / STATE)
            files = {
                it.name: {"bytes": it.stat().st_size, "blake2b": _hash(it)} for it in sorted(fresh.iterdir())
            }
            _write_json(fresh / ABOUT, {**about, "update": update, "files": files})
        with new_file(run / LAST) as last:
            _write_json(last, {"checkpoint": path.name})
    return path


def newest_checkpoint(run: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None; report damaged ones."""
    damaged: list[str] = []
    for path in reversed(_checkpoint_folders(run)):
        damage = _find_damage(path)
        if damage is None:
            for other in damaged:
                warn(f"{other}; resuming from checkpoint {path.name}")
            return Checkpoint(path, _read_about(path))
        damaged.append(damage)
    if damaged:
        raise ValueError(
            f"{damaged[0]}, and no older checkpoint is intact: start again with another --output"
        )
    return None


def complete_checkpoints(run: Path) -> list[Checkpoint]:
    """Return all intact checkpoints, oldest first."""
    return [
        Checkpoint(path, _read_about(path)) for path in _checkpoint_folders(run) if _find_damage(path) is None
    ]


def remove_old_checkpoints(run: Path, keep: int, spare: set[int]) -> None:
    """Remove all but the last `keep` regular checkpoints, the newest, and those of updates in `spare`."""
    paths = _checkpoint_folders(run)
    regular = [path for path in paths if (about := _read_about(path)) and about.get("regular", True)]
    stay = {*regular[-keep:], *paths[-1:], *(path for path in paths if int(path.name) in spare)}
    for path in paths:
        if path not in stay:
            remove_folder(path)


def remove_unfinished(run: Path) -> None:
    """Remove unfinished files of killed processes. The caller holds the run's lock."""
    for folder in (run, run / FOLDER):
        io.remove_abandoned(folder, older=-math.inf)


def _checkpoint_folders(run: Path) -> list[Path]:
    folder = run / FOLDER
    return sorted(it for it in folder.iterdir() if it.name.isdigit()) if folder.is_dir() else []


def _read_about(path: Path) -> dict[str, Any]:
    """Read checkpoint.json; {} if it is missing or damaged."""
    try:
        about = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _find_damage(path: Path) -> str | None:
    """Return the damage of a checkpoint; None if it is intact."""
    files = _read_about(path).get("files")
    if not isinstance(files, dict):
        return f"checkpoint {path.name}: {ABOUT} is missing or damaged"
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            return f"checkpoint {path.name}: {name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"checkpoint {path.name}: {name} has {file.stat().st_size} bytes, not {expected['bytes']}"
        if _hash(file) != expected["blake2b"]:
            return f"checkpoint {path.name}: {name} was changed after it was written"
    return None


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def _explain_disk_errors(run: Path) -> Iterator[None]:
    """Explain a full disk, and name the checkpoint to resume from."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        left = (
            "the last complete one is still there: make room on the disk and --resume"
            if complete_checkpoints(run)
            else "there is no earlier one: make room on the disk and start again"
        )
        raise OSError(f"{run}: the checkpoint could not be written ({error}); {left}") from error
