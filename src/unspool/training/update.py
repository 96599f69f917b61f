"""One update of the weights from accumulated batches.

    g = Σ_b ∇L_b / Σ_b w_b,   then   g · min(1, clip/‖g‖)

L_b is the summed loss over the targets of batch b and w_b their weight: the result is the gradient of one big
batch, also for batches of different sizes. Auxiliary objectives are divided by their weights over all batches
(`Objective.for_update`), and random numbers of a row do not depend on its batch (`row_seeds`). Clipping:
Pascanu et al. 2013, algorithm 1 (papers.bib: pascanu2013difficulty).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.training.finite_loss import explain_divergence
from unspool.training.forward_pass import autocast, derive_seed, row_seeds, seed_torch
from unspool.training.recipe_checks import check_row_length
from unspool.training.run_state import Run


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
    if run.objective.draws:
        # Seeds depend on all rows of the update, so that the batches of other processes are read too.
        rows = [batches.get(number) or run.feed.batch(number) for number in range(first, first + count)]
        seeds = row_seeds(rows, derive_seed(run.seed, "rows", run.progress.update))
        batches = {number: replace(it, seeds_N=seeds[number - first]) for number, it in batches.items()}
    clock = replace(run.clock, seed=derive_seed(run.seed, "update", run.progress.update), micro_batches=count)
    return {number: (it, replace(clock, micro_batch=number - first)) for number, it in batches.items()}


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
    parts = {name: it / weight for name, it in zip(others, rest, strict=True)}
    means = total / weight, nll / weight
    done = Update(run.clock, *means, weight, norm, lr, took, stops > 0, accuracy=accuracy, parts=parts)
    return done, batch
