"""One update of the weights, from batches that are added up exactly.

    g = Σ_b ∇L_b / Σ_b w_b,   then   g · min(1, clip/‖g‖)

L_b is the loss summed over the targets of batch b and w_b their weight: the gradient of one big batch,
however unequal the batches are (the mean of the batches' means is not). Auxiliary objectives are divided by
their own weights over all batches (`Objective.for_update`), and what is drawn for a row does not depend on
its batch (`seeds.row_seeds`). Clipping: Pascanu et al. 2013, algorithm 1
(papers.bib: pascanu2013difficulty).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.interfaces import Clock
from unspool.training.finite_loss import explain_divergence
from unspool.training.forward_pass import autocast, derive_seed, row_seeds, seed_torch
from unspool.training.recipe_checks import check_row_length
from unspool.training.run_state import Run


@dataclass(frozen=True)
class Update:
    """What one update was like, over all its batches and processes."""

    clock: Clock
    """After it."""
    loss: float
    """What is minimised, for each target."""
    nll: float
    """−log p of a target; its exponential is the perplexity."""
    weight: float
    """How many targets counted."""
    norm: float
    """Length of the gradient, before it was clipped."""
    lr: float
    seconds: float = 0.0
    """How long it took, without what may follow it: validation, checkpoints, hooks."""
    stop: bool = False
    """Whether one of the processes was asked to stop."""
    valid: float | None = None
    """−log p of a target in the validation, where there was one after it."""
    valid_accuracy: float | None = None
    """How many labels were right in that validation, where a model chooses labels."""
    valid_score: float | None = None
    """The score of greedy answers in that validation, where `train.measure` asks for one."""
    accuracy: float | None = None
    """How many labels of its own batches were right."""
    saved: str | None = None
    """The checkpoint that was written after it, if any."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Whatever else the objective says of its batches, for each target."""


def batch_numbers(run: Run) -> list[int]:
    """The batches of the next update that are this process's."""
    first = run.progress.update * run.settings.accumulate
    return list(range(first + run.team.rank, first + run.settings.accumulate, run.team.size))


def micro_batches(run: Run) -> dict[int, tuple[Batch, Clock]]:
    """The same with their batches and clocks, by number."""
    mine, count = batch_numbers(run), run.settings.accumulate
    first = run.progress.update * count
    batches = {number: run.batch(number) for number in mine}
    if run.objective.draws:
        # Rows are told apart over the whole update, so that all of its batches are read, also others' ones.
        rows = [batches.get(number) or run.feed.batch(number) for number in range(first, first + count)]
        seeds = row_seeds(rows, derive_seed(run.seed, "rows", run.progress.update))
        batches = {number: replace(it, seeds_N=seeds[number - first]) for number, it in batches.items()}
    clock = replace(run.clock, seed=derive_seed(run.seed, "update", run.progress.update), micro_batches=count)
    return {number: (it, replace(clock, micro_batch=number - first)) for number, it in batches.items()}


def apply_update(run: Run, *, stopping: bool = False) -> tuple[Update, Batch]:
    """Change the weights once; the batch is the last of this process."""
    clock, settings, team, began = run.clock, run.settings, run.team, time.monotonic()
    run.optimizer.zero_grad()
    run.model.train()
    total = weight = nll = right = 0.0
    others: dict[str, float] = {}
    work = micro_batches(run)
    mine = list(work)
    for batch, _ in work.values():
        check_row_length(run.model, batch)
    objective = run.objective
    if settings.accumulate > 1:
        seed_torch(run.seed, mine[0])
        with autocast(settings):
            objective = objective.for_update(run.model, list(work.values()), team.sums)  # type: ignore[arg-type]
    for number, (batch, at) in work.items():
        seed_torch(run.seed, number)
        with team.last(run.forward_pass, number == mine[-1]):
            with autocast(settings):
                loss, part, stats = run.forward_pass(objective, batch, at)
            loss.backward()
        if run.carries:
            run.carried[number] = run.take_end()
        total, weight, nll = total + float(loss.detach()), weight + part, nll + stats.get("nll", math.nan)
        right += stats.get("right", math.nan)
        for name in sorted(stats.keys() - {"nll", "right"}):
            others[name] = others.get(name, 0.0) + stats[name]
    sums = team.sums([total, weight, nll, right, float(stopping), *others.values()])
    (total, weight, nll, right, stops), rest = sums[:5], sums[5:]
    if not weight > 0:
        raise ValueError(
            f"update {clock.update + 1}: no target of batches {mine} counts: all weights are 0, or no row is "
            "longer than the prompt of an objective that has the model go on from it (objective.prompt)"
        )
    gradients = run.optimizer.gradients()
    # A shared gradient is the mean over the processes, not their sum.
    scale = team.size / weight
    norm = gradient_norm(run, gradients) * scale
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise explain_divergence(run, objective, work, total, norm)
    if settings.clip and norm > settings.clip:
        scale *= settings.clip / norm
    torch._foreach_mul_(gradients, scale)
    lr = settings.lr * run.schedule(clock.update + 1, settings.updates)
    run.optimizer.step(clock.update + 1, lr)
    run.progress.update += 1
    run.carried = {number: it for number, it in run.carried.items() if number in mine}
    run.progress.targets += weight
    took = time.monotonic() - began
    accuracy = None if math.isnan(right) else right / weight
    parts = {name: it / weight for name, it in zip(others, rest, strict=True)}
    means = total / weight, nll / weight
    done = Update(run.clock, *means, weight, norm, lr, took, stops > 0, accuracy=accuracy, parts=parts)
    return done, batch


def gradient_norm(run: Run, gradients: list[Tensor]) -> float:
    """√Σg², over all parameters and, where each has a part, all processes."""
    return float(run.team.whole(torch.nn.utils.get_total_norm(gradients)))
