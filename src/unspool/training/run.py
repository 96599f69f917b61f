"""From a recipe to a trained model in a run folder.

model = us.train("recipe.toml", out="runs/first")
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from unspool.config import to_dict
from unspool.data import CarriedFeed, PreparedData, prepare
from unspool.data.bucketing import with_bpe_dropout
from unspool.data.encoded_store import FileHashes, hash_files
from unspool.interfaces import Feed, Model
from unspool.models.loading.run_folder import is_run_folder, load_folder, load_run_tokenizer, run_config
from unspool.nn.transformer import enable_checkpointing
from unspool.plugins import allow_code
from unspool.training.checkpoint import Checkpoint, complete_checkpoints
from unspool.training.curves import CURVES
from unspool.training.distributed import ProcessGroup, is_distributed, join_processes as joined
from unspool.training.forward_pass import check_device, seed_torch
from unspool.training.loop import Stopped, training_loop
from unspool.training.pretrained import check_base
from unspool.training.recipe import Recipe, apply_changes, parse_recipe, read_recipe, with_absolute_paths
from unspool.training.recipe_checks import check_model_and_data, recipe_warnings
from unspool.training.reporters import Reporter, WarningsOnly
from unspool.training.resumption import (
    check_files,
    check_length,
    check_settings,
    find_changes,
    flatten_settings,
)
from unspool.training.run_folder import LOCK, RECIPE, RunFolder, last_checkpoint, lock_folder, write_recipe
from unspool.training.run_state import Run
from unspool.training.stop_signals import catch_stop_signals
from unspool.training.validation import check_measure


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    changes: Sequence[str] = (),
    reporter: Reporter | None = None,
    trust_code: bool = False,
) -> Model:
    """Train a model by a recipe (a TOML file, a mapping, or a Recipe) and return it.

    `out` is the run folder: curves, checkpoints and the model, for `us.load`; without it nothing is kept. An
    interrupted run continues with `resume`, bit for bit as if it had not been interrupted. `changes` are
    settings that differ from the recipe, such as "train.updates=200". A recipe that names Python code
    (`kind = "my_package:MyHead"`, `reward = "module:function"`) needs `trust_code`, also on resuming.
    """
    with allow_code(trust_code):
        return _train(as_recipe(recipe, changes), out, resume, reporter)


def _train(read: Recipe, out: str | Path | None, resume: bool, reporter: Reporter | None) -> Model:
    check_device(read.train)
    with (
        _run_folder(out) as path,
        torch.random.fork_rng(devices=[]),
        _torch_threads(read.train.threads),
        joined(read.train.device, read.train.shard) as team,
        lock_folder(path) if team.rank == 0 else nullcontext(),
        _remove_refused_start(path) if team.rank == 0 else nullcontext(),
    ):
        _claim_folder(path, read, resume, team)
        return _run_training(read, path, team, reporter)


def _run_training(recipe: Recipe, path: Path, team: ProcessGroup, reporter: Reporter | None) -> Model:
    reporter = reporter or WarningsOnly()
    found = last_checkpoint(path, team, reporter.warn)
    files = hash_files(recipe.data)
    history = [] if found is None else _change_history(recipe, path, found, files)
    model = None if recipe.pretrained is None else recipe.pretrained.beginning(found)
    # Of a checkpoint, not of the run folder: a kill may have come while its files were replaced.
    learnt = (
        model.tokenizer if model is not None else None if found is None else load_run_tokenizer(found.path)
    )
    prepared = _prepare_data(recipe, path, team, reporter.draws, files, learnt)
    for note in prepared.notes:
        reporter.warn(note)
    run = start_run(recipe, prepared, team, model)
    if recipe.pretrained is not None:
        check_base(
            path, None if found is None else found.about.get("base"), run.base, recipe.pretrained.from_
        )
        learn, all_ = (
            sum(it.numel() for it in some) for some in (run.optimizer.state, run.model.parameters())
        )
        reporter.note(f"{learn:,} of {all_:,} weights learn, from {recipe.pretrained.from_}")
    check_model_and_data(run.model, [prepared.train.batch(0), *prepared.valid[-1:]])
    if found is not None:
        check_length(path, run.settings.updates, found.update)
    origin = {
        **{"recipe": flatten_settings(recipe, run.model.config), "data_files": files, "history": history},
        "base": run.base,
    }
    folder = RunFolder(path, facts=prepared.facts, origin=origin)
    folder.restore(run, found)
    # Only now, when nothing is left that could be refused: else a refused change would stay here.
    if team.rank == 0:
        write_recipe(path, recipe.settings, history)
    for oddity in recipe_warnings(
        run.settings, recipe.schedule, bool(prepared.valid), recipe.minimised.rewarded
    ):
        reporter.warn(oddity)
    if found is not None:
        for change in history[len(found.about.get("history", ())) :]:
            reporter.note(change)
        reporter.note(f"going on after update {found.update}")
    try:
        with catch_stop_signals() as asked:
            try:
                reporter.follow(training_loop(run, folder, asked), run)
            except Stopped as stopped:
                stopped.signal = asked.signal
                raise
        folder.finish(run)
    finally:
        folder.close(run)
    trained: Model = load_folder(path).to(recipe.train.device)
    return trained


def start_run(
    recipe: Recipe, prepared: PreparedData, team: ProcessGroup | None = None, model: Any = None
) -> Run:
    """The run before its first update: of the model given, or of a new one."""
    feed = prepared.train
    if isinstance(feed, CarriedFeed):
        feed = feed.side_by_side(recipe.train.accumulate)
    seed_torch(recipe.seed, "weights")
    base = None
    if recipe.pretrained is not None:
        model = recipe.pretrained.beginning(None) if model is None else model
        base = recipe.pretrained.prepare(model)
    else:
        text = prepared.text
        sources = None if text.source is None else text.source.vocab_size
        model = recipe.shape(text.vocab_size, prepared.labels, sources).build(text)
    if recipe.train.recompute:
        enable_checkpointing(model)
    if model.infilling is not None and not recipe.minimised.hides:
        raise ValueError(
            f"a {type(model).__name__} learns what stands at hidden places, and the objective hides none: "
            'choose objective.kind = "masked" or "masked_diffusion"'
        )
    recipe.minimised.check(model)
    _check_own_batches(recipe, feed)
    check_measure(recipe.train.measure, model, prepared.valid)
    limit: int = min(recipe.batches.longest, model.context or recipe.batches.longest)
    feed = with_bpe_dropout(feed, recipe.text, prepared.text, limit, recipe.seed)
    return Run(
        model,
        recipe.minimised,
        feed,
        recipe.train.counted(feed.per_epoch),
        valid=prepared.valid,
        schedule=recipe.schedule,
        hooks=[it.build(model) for it in recipe.hooks],
        seed=recipe.seed,
        team=team,
        base=base,
    )


def _check_own_batches(recipe: Recipe, feed: Feed) -> None:
    """Refuse to carry hidden states over batches if an objective has the model read other rows in between."""
    if recipe.minimised.own_batches and feed.carries:
        raise ValueError(
            "batches.carry has each row go on where the last one ended, and an objective has the model read "
            "rows of its own in between: set batches.carry to false, or leave that objective out"
        )


def as_recipe(recipe: str | Path | Mapping[str, Any] | Recipe, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe with absolute paths; refuse it if it names code that the user does not trust."""
    found = _as_recipe(recipe, changes)
    found.check_trust()
    return found


def _as_recipe(recipe: str | Path | Mapping[str, Any] | Recipe, changes: Sequence[str]) -> Recipe:
    if isinstance(changes, str | Mapping) or not isinstance(changes, Sequence):
        raise TypeError(f'changes is {changes!r:.80}, but must be a list such as ["train.updates=200"]')
    for change in changes:
        if not isinstance(change, str):
            raise TypeError(f'changes holds {change!r:.80}, but each is a string such as "train.updates=200"')
    match recipe:
        case Recipe():
            return with_absolute_paths(parse_recipe(apply_changes(recipe.said(), changes)))
        case str() | os.PathLike():
            return with_absolute_paths(read_recipe(recipe, changes))
    if not isinstance(recipe, Mapping):
        raise TypeError(
            f"the recipe is {recipe!r:.80}, but must be the path of a TOML file, a mapping or a Recipe"
        )
    return with_absolute_paths(parse_recipe(apply_changes(recipe, changes)))


def _change_history(recipe: Recipe, path: Path, found: Checkpoint, files: FileHashes) -> list[str]:
    """What was changed on the way, now included; an error for a change that cannot be made."""
    about = found.about
    before = run_config(found.path)
    shape = before
    if recipe.pretrained is None:
        said = to_dict(before)
        shape = recipe.shape(before.vocab_size, said.get("labels", ()), said.get("source_vocab_size"))
    new = find_changes(about.get("recipe", {}), flatten_settings(recipe, shape), recipe.data)
    check_settings(path, new)
    check_files(path, about.get("data_files", files), files, recipe.data)
    return [*about.get("history", ()), *(f"after update {found.update}: {change}" for change in new)]


def _prepare_data(
    recipe: Recipe, path: Path, team: ProcessGroup, draws: bool, files: FileHashes, learnt: Any
) -> PreparedData:
    """The first process reads and encodes; the others find it done. `learnt` is a text that there is."""

    def prepared(progress: bool) -> PreparedData:
        text: Any = learnt or recipe.text
        return prepare(recipe.data, text, recipe.batches, recipe.seed, path / "data", progress, files)

    if team.rank == 0:
        first = prepared(draws)
    team.wait()
    return first if team.rank == 0 else prepared(False)


def _claim_folder(path: Path, recipe: Recipe, resume: bool, team: ProcessGroup) -> None:
    """Refuse to write over another run; leave the recipe there, so that a killed start can be resumed."""
    if team.rank == 0:
        # Before its first checkpoint there is nothing to lose: a failed start does not block the next one.
        if not resume and (complete_checkpoints(path) or is_run_folder(path)):
            raise FileExistsError(
                f"{path} holds a run already: --resume goes on with it; or choose another --output"
            )
        if not resume or not (path / RECIPE).exists():
            write_recipe(path, recipe.settings)
    team.wait()


@contextmanager
def _run_folder(out: str | Path | None) -> Iterator[Path]:
    """The run folder; a new one is removed again if the start is refused, for it is empty then."""
    if out is not None:
        path = Path(out)
        new = [it for it in (path, *path.parents) if not it.exists()]
        path.mkdir(parents=True, exist_ok=True)
        try:
            yield path
        except Exception:
            with suppress(OSError):
                for it in new:
                    it.rmdir()
            raise
        return
    if is_distributed():
        raise ValueError("several processes need a folder that all of them see: give --output")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def _remove_refused_start(path: Path) -> Iterator[None]:
    """If the start is refused, remove what it wrote into an empty folder. Only for whoever holds the lock."""
    empty = {it.name for it in path.iterdir()} <= {LOCK}
    try:
        yield
    except Exception:
        if empty and not (path / CURVES).exists():  # a run begins with its curves
            for it in path.iterdir():
                with suppress(OSError):
                    shutil.rmtree(it) if it.is_dir() else it.unlink()
        raise


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
