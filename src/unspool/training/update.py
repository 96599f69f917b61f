"""One update of the weights from accumulated batches.

    g = Σ_b ∇L_b / Σ_b w_b,   then   g · min(1, clip/‖g‖)

L_b is the summed loss over the targets of batch b and w_b their weight: the result is the gradient of one big
batch, also for batches of different sizes. Auxiliary objectives are divided by their weights over all batches
(`Objective.for_update`), and random numbers of a row do not depend on its batch (`row_seeds`). Clipping:
Pascanu et al. 2013, algorithm 1 (papers.bib: pascanu2013difficulty).

If the loss or a gradient is not finite, the run stops before the weights change. The batches run again with
the same dropout and hooks on every layer. The error names the first layer whose output is not finite, or else
the first weights (from the loss backwards) whose gradient is not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unspool.data.batch import Batch
from unspool.interfaces import Clock, Objective
from unspool.training.forward_pass import autocast, derive_seed, row_seeds, seed_torch
from unspool.training.recipe_checks import check_row_length
from unspool.training.run_state import Run


class Diverged(ArithmeticError):  # noqa: N818 — named for what happened
    """The loss or the gradient was not finite; the weights are those before the update."""


def explain_divergence(
    run: Run, objective: Objective, batches: Mapping[int, tuple[Batch, Clock]], total: float, norm: float
) -> Diverged:
    """Find the first layer that is not finite; the model is unchanged."""
    what, value = ("gradient", norm) if math.isfinite(total) else ("loss", total)
    places = (_first_nonfinite(run, objective, number, *work) for number, work in batches.items())
    where = next(filter(None, places), f"all layers are finite in each of the batches {list(batches)}")
    return Diverged(
        f"update {run.progress.update + 1}: the {what} is {value}, and the weights were not touched: "
        f"{where}. Try a lower train.lr, a longer schedule.warmup or a smaller train.clip"
    )


def _first_nonfinite(run: Run, objective: Objective, number: int, batch: Batch, clock: Clock) -> str | None:
    spoilt = next((name for name, weight in run.model.named_parameters() if not _is_finite(weight)), None)
    layers: list[str] = []

    def note(name: str, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
        if not _is_finite(output):
            layers.append(name)

    modules = [(name, module) for name, module in run.model.named_modules() if name]
    handles = [module.register_forward_hook(partial(note, name)) for name, module in modules]
    run.optimizer.zero_grad()
    seed_torch(run.seed, number)
    with run.processes.gradient_sync(run.forward_pass, False):
        with autocast(run.settings):
            total, _, _ = run.forward_pass(objective, batch, clock)
        total.backward()
    for handle in handles:
        handle.remove()
    gradients = [name for name, weight in run.optimizer.named.items() if not _is_finite(weight.grad)]
    run.optimizer.zero_grad()
    if _is_finite(total) and not gradients:
        return None
    if spoilt is not None:
        return f"before batch {number} the weights of {spoilt!r} were not finite already"
    if layers:
        return f"in batch {number} the output of layer {layers[0]!r} is the first that is not finite"
    if not _is_finite(total):
        return f"in batch {number} every layer is finite, but not the loss: look at the head and its targets"
    return f"in batch {number} the gradient of {gradients[-1]!r} is the first that is not finite"


def _is_finite(found: Any) -> bool:
    if isinstance(found, Tensor):
        return not found.is_floating_point() or bool(torch.isfinite(found).all())
    return all(_is_finite(part) for part in found) if isinstance(found, (tuple, list)) else True


@dataclass(frozen=True)
class Update:
    """Statistics of one update, over all its batches and processes."""

    clock: Clock
    """The clock after it."""
    loss: float
    """The loss per target."""
    nll: float
    """−log p of a target; its exponential is the perplexity."""
    weight: float
    """Total weight of the targets."""
    norm: float
    """Gradient norm before clipping."""
    lr: float
    seconds: float = 0.0
    """Duration, without validation, checkpoints and hooks."""
    stop: bool = False
    """True if a process received a stop signal."""
    valid: float | None = None
    """−log p of a target in the validation after it, if any."""
    valid_accuracy: float | None = None
    """Accuracy in that validation, for models with labels."""
    valid_score: float | None = None
    """Score of greedy outputs in that validation, by `train.measure`."""
    accuracy: float | None = None
    """Accuracy on its batches."""
    saved: str | None = None
    """The checkpoint written after it, if any."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Further statistics of the objective, per target."""


def micro_batches(run: Run) -> dict[int, tuple[Batch, Clock]]:
    """Return number → batch and clock of this process's batches."""
    count = run.settings.accumulate
    first = run.progress.update * count
    mine = range(first + run.processes.rank, first + count, run.processes.size)
    batches = {number: run.batch(number) for number in mine}
    if run.objective.needs_row_seeds:
        # Seeds depend on all rows of the update, so that the batches of other processes are read too.
        rows = [batches.get(number) or run.feed.batch(number) for number in range(first, first + count)]
        seeds = row_seeds(rows, derive_seed(run.seed, "rows", run.progress.update))
        batches = {number: replace(batch, seeds_N=seeds[number - first]) for number, batch in batches.items()}
    clock = replace(run.clock, seed=derive_seed(run.seed, "update", run.progress.update), micro_batches=count)
    return {number: (batch, replace(clock, micro_batch=number - first)) for number, batch in batches.items()}


def apply_update(run: Run, *, stopping: bool = False) -> tuple[Update, Batch]:
    """Update the weights once; also return this process's last batch."""
    clock, settings, processes, began = run.clock, run.settings, run.processes, time.monotonic()
    run.optimizer.zero_grad()
    run.model.train()
    total = weight = nll = right = 0.0
    others: dict[str, float] = {}
    work = micro_batches(run)
    mine = list(work)
    for batch, _ in work.values():
        check_row_length(run.model, batch)
    seed_torch(run.seed, mine[0])
    with autocast(settings):
        objective = run.objective.for_update(run.model, list(work.values()), processes.sums)  # type: ignore[arg-type]
    for number, (batch, at) in work.items():
        seed_torch(run.seed, number)
        with processes.gradient_sync(run.forward_pass, number == mine[-1]):
            with autocast(settings):
                loss, part, stats = run.forward_pass(objective, batch, at)
            loss.backward()
        total, weight, nll = total + float(loss.detach()), weight + part, nll + stats.get("nll", math.nan)
        right += stats.get("right", math.nan)
        for name in sorted(stats.keys() - {"nll", "right"}):
            others[name] = others.get(name, 0.0) + stats[name]
    sums = processes.sums([total, weight, nll, right, float(stopping), *others.values()])
    (total, weight, nll, right, stops), rest = sums[:5], sums[5:]
    if not weight > 0:
        raise ValueError(
            f"update {clock.update + 1}: batches {mine} have no targets: all weights are 0, or no row is "
            "longer than objective.prompt"
        )
    gradients = run.optimizer.gradients()
    # A shared gradient is the mean over the processes.
    scale = processes.size / weight
    norm = float(processes.full_tensor(torch.nn.utils.get_total_norm(gradients))) * scale
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise explain_divergence(run, objective, work, total, norm)
    if settings.clip and norm > settings.clip:
        scale *= settings.clip / norm
    torch._foreach_mul_(gradients, scale)
    lr = settings.lr * run.schedule(clock.update + 1, settings.updates)
    run.optimizer.step(clock.update + 1, lr)
    run.progress.update += 1
    run.progress.targets += weight
    took = time.monotonic() - began
    accuracy = None if math.isnan(right) else right / weight
    parts = {name: value / weight for name, value in zip(others, rest, strict=True)}
    means = total / weight, nll / weight
    done = Update(run.clock, *means, weight, norm, lr, took, stops > 0, accuracy=accuracy, parts=parts)
    return done, batch
