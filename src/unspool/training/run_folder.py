"""The run folder of a training run: recipe, curves, checkpoints, and the newest model.

recipe.toml   curves.jsonl   last.json   checkpoints/…
config.json   model.safetensors   tokenizer…        read by us.load: links to the newest checkpoint
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from unspool.io import new_file, temporary_sibling
from unspool.models.loading.lora_file import ADAPTERS, lora_settings, write_adapters
from unspool.models.loading.run_folder import CONFIG, write_run_folder
from unspool.models.lora import adapter_weights
from unspool.plots.seeds import draw_curves
from unspool.training.checkpoint import (
    ABOUT,
    FOLDER,
    STATE,
    Checkpoint,
    complete_checkpoints,
    newest_checkpoint,
    remove_old_checkpoints,
    remove_unfinished,
    write_checkpoint,
)
from unspool.training.curves import CURVES, PICTURE, Curves, read_curves
from unspool.training.distributed import ProcessGroup
from unspool.training.run_state import Progress, Run

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
        fresh.write_text("".join(f"# {it}\n" for it in history) + content, encoding="utf-8")


def _without_none(settings: Any) -> Any:
    """Remove None, which TOML cannot express."""
    match settings:
        case Mapping():
            return {key: _without_none(it) for key, it in settings.items() if it is not None}
        case list() | tuple():
            return [_without_none(it) for it in settings]
    return settings


class RunFolder:
    """Writes a run to its folder. Only the first process writes; the others help to gather tensors."""

    def __init__(
        self,
        path: Path,
        write: Callable[[Run, Mapping[str, Tensor], Path], None] = write_model,
        facts: Mapping[str, Any] | None = None,
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        """`facts` are counts of the data; `origin` are further entries of checkpoint.json."""
        self.path, self._write, self._facts, self._origin = path, write, dict(facts or {}), dict(origin or {})
        self._curves: Curves | None = None

    def resume(self, run: Run, warn: Callable[[str], None] = warnings.warn) -> Checkpoint | None:
        """Resume from the newest intact checkpoint; return None if the run is new."""
        checkpoint = last_checkpoint(self.path, run.processes, warn)
        self.restore(run, checkpoint)
        return checkpoint

    def restore(self, run: Run, checkpoint: Checkpoint | None) -> None:
        """Resume from a checkpoint, or start a new run if it is None."""
        if checkpoint is not None:
            self._check_data(checkpoint)
            progress = Progress.from_json(checkpoint.about["progress"])
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
        """Append a point to the curves."""
        if self._curves is not None:
            self._curves.add(point)

    def checkpoint(self, run: Run, *, regular: bool) -> str | None:
        """Write a checkpoint, publish it, and remove old ones."""
        weights, state = run.weights(), run.training_state()
        if run.processes.rank == 0:
            about = {
                "regular": regular,
                "curves": self._curves.flush() if self._curves else 0,
                "progress": run.progress.to_json(),
                "data": self._facts,
                **self._origin,
                "torch": torch.__version__,
            }
            path = write_checkpoint(
                self.path, run.progress.update, about, state, lambda to: self._write(run, weights, to)
            )
            self.publish(path)
            settings = run.settings
            keep = max(settings.keep, settings.average) if settings.final == "average" else settings.keep
            remove_old_checkpoints(self.path, keep, {run.progress.best_update})
        run.processes.wait()
        return f"{run.progress.update:08d}"

    def publish(self, source: Path) -> None:
        """Link the model of `source` into the run folder; config.json last, because it marks a model."""
        names = [it.name for it in source.iterdir() if it.name not in (ABOUT, STATE, CONFIG)]
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
        regular = [it for it in complete_checkpoints(self.path) if it.about["regular"]]
        weights = [it.weights() for it in regular[-run.settings.average :]]
        with temporary_sibling(self.path / FOLDER / "average") as folder:
            folder.mkdir()
            self._write(run, average_weights(weights), folder)
            self.publish(folder)

    def close(self, run: Run) -> None:
        """Draw the curves."""
        if run.processes.rank == 0:
            draw_curves(read_curves(self.path), self.path / PICTURE)


def average_weights(weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Average every tensor in float64; integer tensors are taken from the last checkpoint."""
    last = weights[-1]
    return {
        name: sum((it[name].double() for it in weights), torch.zeros(())).div(len(weights)).to(tensor.dtype)
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
