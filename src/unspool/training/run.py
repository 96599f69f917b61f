"""`us.train`: train a model by a recipe, in a run folder.

model = us.train("recipe.toml", out="runs/first")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from unspool.config import to_dict
from unspool.data import PreparedData, prepare
from unspool.data.bpe_dropout import with_bpe_dropout
from unspool.data.encoded_store import FileHashes, hash_files
from unspool.interfaces import Model
from unspool.models.loading.run_folder import load_folder, load_run_tokenizer, run_config
from unspool.nn.transformer import enable_checkpointing
from unspool.plugins import allow_code
from unspool.training.distributed import ProcessGroup, is_distributed, join_processes
from unspool.training.forward_pass import check_device, seed_torch
from unspool.training.loop import Stopped, catch_stop_signals, training_loop
from unspool.training.recipe import AnyRecipe, Recipe, as_recipe, find_changes, flatten_settings
from unspool.training.recipe_checks import (
    NEW_RUN,
    check_batches,
    check_built_run,
    check_resumption,
    recipe_warnings,
)
from unspool.training.reporters import Reporter
from unspool.training.run_folder import (
    Checkpoint,
    RunFolder,
    claim_folder,
    complete_checkpoints,
    last_checkpoint,
    open_run_folder,
    write_recipe,
)
from unspool.training.run_state import Run
from unspool.training.update import Diverged
from unspool.training.validation import score_function


def train(
    recipe: AnyRecipe,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    changes: Sequence[str] = (),
    reporter: Reporter | None = None,
    trust_code: bool = False,
) -> Model:
    """Train a model by a recipe (a TOML file, a mapping, or a Recipe) and return it.

    out: folder for curves, checkpoints and the model, which `us.load` accepts; None saves nothing.
    changes: settings that replace those of the recipe, such as "train.updates=200".
    resume: continue the interrupted run in `out`; it ends with the same weights, bit for bit, as a run that
        was not interrupted.
    trust_code: needed if the recipe names Python code (`kind = "my_package:MyHead"`, `reward =
        "module:function"`), and again when the run is resumed.
    """
    with allow_code(trust_code):
        return _train(as_recipe(recipe, changes), out, resume, reporter or Reporter())


def _train(recipe: Recipe, out: str | Path | None, resume: bool, reporter: Reporter) -> Model:
    if out is None and is_distributed():
        raise ValueError("several processes need a shared folder: give --output")
    check_device(recipe.train)
    with (
        torch.random.fork_rng(devices=[]),
        _torch_threads(recipe.train.threads),
        join_processes(recipe.train.device, recipe.train.shard) as processes,
        open_run_folder(out, processes) as path,
    ):
        claim_folder(path, recipe.settings, resume, processes)
        checkpoint = last_checkpoint(path, processes, reporter.warn)
        run, folder = _begin_run(recipe, path, processes, reporter, checkpoint)
        try:
            with catch_stop_signals() as stop_request:
                try:
                    reporter.follow(training_loop(run, folder, stop_request), run)
                except Stopped as stopped:
                    stopped.signal = stop_request.signal
                    raise
                except Diverged as error:
                    can_resume = out is not None and complete_checkpoints(path)
                    way = "--resume from the last checkpoint" if can_resume else "start again"
                    raise Diverged(f"{error}, and {way}") from None
            folder.finish(run)
        finally:
            folder.close(run)
        return load_folder(path).to(recipe.train.device)


def _begin_run(
    recipe: Recipe, path: Path, processes: ProcessGroup, reporter: Reporter, checkpoint: Checkpoint | None
) -> tuple[Run, RunFolder]:
    """Return a new run, or the run that a checkpoint continues, after all checks."""
    about = {} if checkpoint is None else checkpoint.about
    files = hash_files(recipe.data)
    history = [] if checkpoint is None else _change_history(recipe, path, checkpoint, files)
    model = None if recipe.pretrained is None else recipe.pretrained.load_model(checkpoint)
    tokenizer = None
    if model is not None:
        tokenizer = model.tokenizer
    elif checkpoint is not None:
        # Not from the run folder: the process may have been killed while it replaced files there.
        tokenizer = load_run_tokenizer(checkpoint.path)
    prepared = _prepare_data(recipe, path, processes, reporter.has_progress_bar, files, tokenizer)
    for note in prepared.notes:
        reporter.warn(note)
    run = start_run(recipe, prepared, processes, model)
    if recipe.pretrained is not None:
        name = recipe.pretrained.from_
        if about.get("base") not in (None, run.base):
            raise ValueError(
                f"{path}: its adapters belong to another model than model.from = {name!r}; {NEW_RUN}"
            )
        trained, total = (
            sum(weight.numel() for weight in weights)
            for weights in (run.optimizer.state, run.model.parameters())
        )
        reporter.note(f"training {trained:,} of {total:,} weights of {name}")
    check_batches(run.model, [prepared.train.batch(0), *prepared.valid[-1:]])
    if checkpoint is not None and run.settings.updates < checkpoint.update:
        raise ValueError(
            f"{path}: the run has done {checkpoint.update} updates, more than the {run.settings.updates} of "
            f"the recipe; {NEW_RUN}"
        )
    settings = flatten_settings(recipe, run.model.config)
    origin = {"recipe": settings, "data_files": files, "history": history, "base": run.base}
    folder = RunFolder(path, facts=prepared.facts, origin=origin)
    folder.restore(run, checkpoint)
    # After all checks, so that recipe.toml never holds a refused change.
    if processes.rank == 0:
        write_recipe(path, recipe.settings, history)
    rewarded = recipe.total_objective.uses_reward
    for warning in recipe_warnings(run.settings, recipe.schedule, bool(prepared.valid), rewarded):
        reporter.warn(warning)
    if checkpoint is not None:
        for change in history[len(about.get("history", ())) :]:
            reporter.note(change)
        reporter.note(f"resuming after update {checkpoint.update}")
    return run, folder


def start_run(
    recipe: Recipe, prepared: PreparedData, processes: ProcessGroup | None = None, model: Any = None
) -> Run:
    """Return a run before its first update, with the given model or a new one."""
    feed = prepared.train
    seed_torch(recipe.seed, "weights")
    base = None
    if recipe.pretrained is not None:
        model = recipe.pretrained.load_model(None) if model is None else model
        base = recipe.pretrained.freeze(model)
    else:
        tokenizer = prepared.tokenizer
        sources = None if tokenizer.source is None else tokenizer.source.vocab_size
        model = recipe.model_config(tokenizer.vocab_size, prepared.labels, sources).build(tokenizer)
    if recipe.train.recompute:
        enable_checkpointing(model)
    check_built_run(recipe, model, prepared.valid)
    recipe.total_objective.check(model)
    if recipe.train.measure != "loss":
        score_function(recipe.train.measure)
    limit: int = min(recipe.batches.longest, model.context or recipe.batches.longest)
    feed = with_bpe_dropout(feed, recipe.tokenizer, prepared.tokenizer, limit, recipe.seed)
    return Run(
        model,
        recipe.total_objective,
        feed,
        recipe.train.with_updates(feed.per_epoch),
        valid=prepared.valid,
        schedule=recipe.schedule,
        hooks=[hook.build(model) for hook in recipe.hooks],
        seed=recipe.seed,
        processes=processes,
        base=base,
    )


def _change_history(recipe: Recipe, path: Path, checkpoint: Checkpoint, files: FileHashes) -> list[str]:
    """Return all changes since the run began, those of now included; refuse forbidden ones."""
    about = checkpoint.about
    before = run_config(checkpoint.path)
    model_config = before
    if recipe.pretrained is None:
        config = to_dict(before)
        model_config = recipe.model_config(
            before.vocab_size, config.get("labels", ()), config.get("source_vocab_size")
        )
    new = find_changes(about.get("recipe", {}), flatten_settings(recipe, model_config), recipe.data)
    check_resumption(path, new, recipe.data, about.get("data_files", files), files)
    return [*about.get("history", ()), *(f"after update {checkpoint.update}: {change}" for change in new)]


def _prepare_data(
    recipe: Recipe, path: Path, processes: ProcessGroup, progress: bool, files: FileHashes, tokenizer: Any
) -> PreparedData:
    """Prepare the data in the first process; the others then read its cache."""
    settings = recipe.data, tokenizer or recipe.tokenizer, recipe.batches, recipe.seed, path / "data"
    if processes.rank == 0:
        prepared = prepare(*settings, progress=progress, files=files)
    processes.wait()
    return prepared if processes.rank == 0 else prepare(*settings, files=files)


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
