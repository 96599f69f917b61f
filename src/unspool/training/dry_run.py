"""Dry run: estimate the memory and time of a recipe without training.

    memory ≈ weights + gradients + moments (2 · gradients) + activations of the largest batch
    time   ≈ updates · accumulate · (seconds of a forward and a backward pass)

Both are measured on a few batches with all objectives, also those that start later. Checkpoints and
validations are not included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.data import prepare
from unspool.plugins import allow_code
from unspool.training.forward_pass import autocast, check_device, seed_torch
from unspool.training.recipe import AnyRecipe, as_recipe
from unspool.training.recipe_checks import check_batches, recipe_warnings
from unspool.training.reporters import format_duration
from unspool.training.run import start_run
from unspool.training.run_state import Run

PASSES, LONGEST = 3, 20.0
"""Number of measured batches, and the time limit in seconds."""


@dataclass(frozen=True)
class DryRun:
    """The estimates of a dry run."""

    data: Mapping[str, int]
    """Counts of examples, tokens and batches."""
    model: str
    weights: int
    learning: int
    """Trained weights."""
    batches: tuple[tuple[int, int], ...]
    """Rows and columns of the measured batches."""
    updates: int
    bytes: int
    """Peak memory, without Python and torch themselves."""
    seconds: float
    """Time of the whole run on this machine."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""

    def lines(self) -> list[str]:
        shapes = ", ".join(f"{rows} × {columns}" for rows, columns in self.batches)
        return [
            *(f"{name.replace('_', ' ')}: {count:,}" for name, count in self.data.items()),
            f"model: {self.model}, {self.weights:,} weights, of which {self.learning:,} are trained",
            f"measured batches: {shapes} (rows × positions)",
            f"memory: about {self.bytes / 2**20:,.0f} MB",
            f"time: about {format_duration(max(1, self.seconds))} for {self.updates:,} updates",
            *(f"note: {note}" for note in self.notes),
        ]


def dry_run(recipe: AnyRecipe, changes: Sequence[str] = (), *, trust_code: bool = False) -> DryRun:
    """Read the data, build the model and run some batches; weights and files stay unchanged."""
    with allow_code(trust_code), tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        read = as_recipe(recipe, changes)
        check_device(read.train)
        model = None if read.pretrained is None else read.pretrained.load_model(None)
        tokenizer = read.tokenizer if model is None else model.tokenizer
        prepared = prepare(read.data, tokenizer, read.batches, read.seed, folder)
        run = start_run(read, prepared, model=model)
        check_batches(run.model, [prepared.train.batch(0), *prepared.valid[-1:]])
        shapes, kept, seconds = _measure(run)
    weights = sum(weight.numel() for weight in run.model.parameters())
    learning = sum(weight.numel() for weight in run.optimizer.state)
    held = sum(weight.numel() * weight.element_size() for weight in run.model.parameters())
    moments = sum(3 * weight.numel() * weight.element_size() for weight in run.optimizer.state)
    odd = recipe_warnings(run.settings, read.schedule, bool(prepared.valid), read.total_objective.uses_reward)
    return DryRun(
        {name: count for name, count in prepared.facts.items() if count},
        type(run.model).__name__,
        weights,
        learning,
        tuple(shapes),
        run.settings.updates,
        held + moments + kept,
        seconds * run.settings.updates * run.settings.accumulate,
        (*prepared.notes, *odd),
    )


def _measure(run: Run) -> tuple[list[tuple[int, int]], int, float]:
    """Return shapes of some batches, their peak activation bytes, and seconds per pass."""
    own = {weight.untyped_storage().data_ptr() for weight in run.model.parameters()}
    shapes: list[tuple[int, int]] = []
    most, took = 0, []
    run.model.train()
    end = replace(run.clock, update=max(0, run.settings.updates - 1))
    began = time.monotonic()
    for number in range(min(PASSES + 1, max(2, run.feed.per_epoch))):
        batch = run.batch(number)
        seed_torch(run.seed, number)
        kept: dict[int, int] = {}

        def note(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        start = time.monotonic()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), autocast(run.settings):
            loss, _, _ = run.forward_pass(run.objective, batch, end)
        loss.backward()
        took.append(time.monotonic() - start)
        run.optimizer.zero_grad()
        shapes.append((batch.inputs_NT.shape[0], batch.inputs_NT.shape[1]))
        most = max(most, sum(kept.values()))
        if time.monotonic() - began > LONGEST:
            break
    # The first pass includes one-time costs.
    return shapes, most, sum(took[1:] or took) / len(took[1:] or took)
