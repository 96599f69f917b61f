"""The run folder of a training run: recipe, curves, checkpoints, and the newest model.

    recipe.toml   curves.jsonl
    config.json   model.safetensors   tokenizer…    read by us.load: links to the newest checkpoint
    checkpoints/00000500/   model.safetensors, config.json, tokenizer…   a model that us.load reads
                            adapters.safetensors                         if the run trains adapters
                            memory.safetensors                           state of optimizer and hooks
                            checkpoint.json                              progress; size and hash of every file
    last.json               the name of the newest one

Checkpoints are written atomically and verified by hashes when read:

    write to a temporary folder → rename → replace last.json → remove old checkpoints

Nothing is pickled. A damaged checkpoint is skipped in favour of the one before.

curves.jsonl has one JSON line for each point. A checkpoint records the length of the file. A resumed run
truncates it to that length, so that every update is in it once.

    {"update": 100, "epoch": 0.4, "loss": 5.1, "nll": 5.0, "norm": 0.8, "lr": 0.001, …}
    {"update": 500, "valid": 4.7, …}
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file, save_file
from torch import Tensor

from unspool import io
from unspool.config import build, to_dict
from unspool.io import name_file_in_errors, new_file, new_folder, remove_folder, temporary_sibling
from unspool.models.loading.lora_file import ADAPTERS, lora_settings, write_adapters
from unspool.models.loading.run_folder import CONFIG, is_run_folder, write_run_folder
from unspool.models.lora import adapter_weights
from unspool.plots.seeds import draw_curves
from unspool.training.distributed import ProcessGroup
from unspool.training.run_state import Progress, Run

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
        return load_file(self.path / WEIGHTS)

    def adapters(self) -> dict[str, Tensor] | None:
        """Load the adapters' tensors; None without adapters."""
        file = self.path / ADAPTERS
        return load_file(file) if file.is_file() else None

    def training_state(self) -> dict[str, Tensor]:
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
                file.name: {"bytes": file.stat().st_size, "blake2b": _hash(file)}
                for file in sorted(fresh.iterdir())
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
    return sorted(entry for entry in folder.iterdir() if entry.name.isdigit()) if folder.is_dir() else []


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


CURVES = "curves.jsonl"
PICTURE = "curves.svg"


class Curves:
    """Appends points to the file, which is open only during a write."""

    def __init__(self, path: Path, length: int = 0) -> None:
        self._path = path
        with path.open("ab") as file:
            # A file shorter than recorded must not be extended with zeros.
            file.truncate(min(length, path.stat().st_size))

    def add(self, point: dict[str, Any]) -> None:
        with name_file_in_errors(self._path), self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(point).encode() + b"\n")

    def flush(self) -> int:
        """Flush to the disk and return the length of the file."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def read_curves(run: Path) -> list[dict[str, Any]]:
    """Read all points of a run folder, without an unfinished last line."""
    path = run / CURVES
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


RECIPE = "recipe.toml"


def write_model(run: Run, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write the files that us.load reads, and the adapters."""
    model: Any = run.model
    write_run_folder(model, folder, weights)
    if run.base is not None:
        write_adapters(folder / ADAPTERS, lora_settings(model), run.base, adapter_weights(model))


def last_checkpoint(path: Path, processes: ProcessGroup, warn: Callable[[str], None]) -> Checkpoint | None:
    """Remove unfinished files and return the newest intact checkpoint. All processes must call it."""
    if processes.rank == 0:
        remove_unfinished(path)
    processes.wait()
    return newest_checkpoint(path, warn)


def write_recipe(path: Path, settings: Mapping[str, Any], history: Sequence[str] = ()) -> None:
    """Write recipe.toml: the settings, after comments with earlier changes."""
    with new_file(path / RECIPE) as fresh:
        content = tomli_w.dumps(_without_none(settings))
        fresh.write_text("".join(f"# {line}\n" for line in history) + content, encoding="utf-8")


def _without_none(settings: Any) -> Any:
    """Remove None, which TOML cannot express."""
    match settings:
        case Mapping():
            return {key: _without_none(value) for key, value in settings.items() if value is not None}
        case list() | tuple():
            return [_without_none(value) for value in settings]
    return settings


class RunFolder:
    """Writes a run to its folder. Only the first process writes; the others help to gather tensors."""

    def __init__(
        self, path: Path, facts: Mapping[str, Any] | None = None, origin: Mapping[str, Any] | None = None
    ) -> None:
        """`facts` are counts of the data; `origin` are further entries of checkpoint.json."""
        self.path, self._facts, self._origin = path, dict(facts or {}), dict(origin or {})
        self._curves: Curves | None = None

    def restore(self, run: Run, checkpoint: Checkpoint | None) -> None:
        """Resume from a checkpoint, or start a new run if it is None."""
        if checkpoint is not None:
            self._check_data(checkpoint)
            progress = build(Progress, checkpoint.about["progress"], "progress")
            run.restore(checkpoint.adapters() or checkpoint.weights(), checkpoint.training_state(), progress)
        if run.processes.rank == 0:
            if checkpoint is not None:
                self.publish(checkpoint.path)  # the process may have been killed during it
            self._curves = Curves(self.path / CURVES, checkpoint.about["curves"] if checkpoint else 0)

    def _check_data(self, checkpoint: Checkpoint) -> None:
        before = checkpoint.about["data"]
        for name, now in self._facts.items():
            if before.get(name, now) != now:
                raise ValueError(
                    f"{self.path}: the data has changed since checkpoint {checkpoint.path.name} ({name} was "
                    f"{before[name]}, is {now}): restore the old data, or start a new run"
                )

    def add_point(self, point: dict[str, float]) -> None:
        if self._curves is not None:
            self._curves.add(point)

    def checkpoint(self, run: Run, *, regular: bool) -> str | None:
        """Write a checkpoint, publish it, and remove old ones."""
        weights, state = run.weights(), run.training_state()
        if run.processes.rank == 0:
            about = {
                "regular": regular,
                "curves": self._curves.flush() if self._curves else 0,
                "progress": to_dict(run.progress),
                "data": self._facts,
                **self._origin,
                "torch": torch.__version__,
            }
            update = run.progress.update
            self.publish(
                write_checkpoint(self.path, update, about, state, lambda to: write_model(run, weights, to))
            )
            settings = run.settings
            keep = max(settings.keep, settings.average) if settings.final == "average" else settings.keep
            remove_old_checkpoints(self.path, keep, {run.progress.best_update})
        run.processes.wait()
        return f"{run.progress.update:08d}"

    def publish(self, source: Path) -> None:
        """Link the model of `source` into the run folder; config.json last, because it marks a model."""
        names = [file.name for file in source.iterdir() if file.name not in (ABOUT, STATE, CONFIG)]
        for name in (*names, *([CONFIG] if (source / CONFIG).exists() else [])):
            with new_file(self.path / name) as fresh:
                try:
                    os.link(source / name, fresh)
                except OSError:  # some file systems do not support links
                    shutil.copyfile(source / name, fresh)

    def finish(self, run: Run) -> None:
        """Publish the final weights: of the last or best checkpoint, or the mean of the last regular ones."""
        if run.processes.rank == 0:
            last, best, final = run.progress.update, run.progress.best_update, run.settings.final
            if final == "average":
                self._publish_average(run)
            else:
                at = (best or last) if final == "best" else last
                self.publish(self.path / FOLDER / f"{at:08d}")
        run.processes.wait()

    def _publish_average(self, run: Run) -> None:
        regular = [
            checkpoint for checkpoint in complete_checkpoints(self.path) if checkpoint.about["regular"]
        ]
        weights = [checkpoint.weights() for checkpoint in regular[-run.settings.average :]]
        with temporary_sibling(self.path / FOLDER / "average") as folder:
            folder.mkdir()
            write_model(run, average_weights(weights), folder)
            self.publish(folder)

    def close(self, run: Run) -> None:
        if run.processes.rank == 0:
            draw_curves(read_curves(self.path), self.path / PICTURE)


def average_weights(weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average every tensor in float64; integer tensors are taken from the last checkpoint."""
    last = weights[-1]
    return {
        name: sum((tensors[name].double() for tensors in weights), torch.zeros(()))
        .div(len(weights))
        .to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in last.items()
    }


LOCK = ".lock"


@contextmanager
def lock_folder(run: Path) -> Iterator[None]:
    """Lock the run folder; BlockingIOError if another process has locked it."""
    path = run / LOCK
    holder = ""
    with suppress(OSError, ValueError):  # read first: some versions of filelock truncate the file
        holder = path.read_text(encoding="ascii").strip()
    try:
        lock = FileLock(path).acquire(blocking=False)
    except Timeout as error:
        raise BlockingIOError(
            f"{run} is locked by another process ({holder or 'unknown'}): wait for it, stop it, or choose "
            "another --output"
        ) from error
    with lock:
        with suppress(OSError):  # Windows forbids writing to a locked file
            path.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield


def claim_folder(path: Path, settings: Mapping[str, Any], resume: bool, processes: ProcessGroup) -> None:
    """Refuse to overwrite another run; write the recipe, so that a killed start can be resumed."""
    if processes.rank == 0:
        # A folder without a checkpoint may be overwritten: a failed start does not block the next one.
        if not resume and (complete_checkpoints(path) or is_run_folder(path)):
            raise FileExistsError(
                f"{path} already holds a run: continue it with --resume, or choose another --output"
            )
        if not resume or not (path / RECIPE).exists():
            write_recipe(path, settings)
    processes.wait()


@contextmanager
def open_run_folder(out: str | Path | None, processes: ProcessGroup) -> Iterator[Path]:
    """The run folder, locked; if the start is refused, nothing new is left in it."""
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    path = Path(out)
    new = [parent for parent in (path, *path.parents) if not parent.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(path) if processes.rank == 0 else nullcontext():
            empty = processes.rank == 0 and {entry.name for entry in path.iterdir()} <= {LOCK}
            try:
                yield path
            except Exception:
                if empty and not (path / CURVES).exists():  # a started run has curves
                    for entry in path.iterdir():
                        with suppress(OSError):
                            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                raise
    except Exception:
        with suppress(OSError):
            for parent in new:
                parent.rmdir()
        raise
