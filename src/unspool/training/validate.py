"""How well the model predicts text that it does not learn from.

−log p = Σ_b Σ_j −log p(y_j | y_{<j}, x) / Σ_b w_b
accuracy = Σ_b Σ_j [y_j is the most probable label] / Σ_b w_b
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.objectives.cross_entropy import CrossEntropy
from unspool.training.precision import arithmetic
from unspool.training.run_state import Run
from unspool.training.seeds import reseed


@dataclass(frozen=True)
class Validation:
    """Means over the targets of the validation set."""

    nll: float
    """−log p of a target."""
    accuracy: float | None
    """How many labels are right, where a model chooses labels."""


@torch.no_grad()
def validate(run: Run) -> Validation:
    """Over all batches of the validation set, without dropout. Every process must ask."""
    run.model.eval()
    objective, team = (run.objective if run.objective.hides else CrossEntropy()), run.team
    nll = weight = right = 0.0
    ends: dict[int, Tensor] = {}
    for at, mine in _shares(run):
        batch = run.begun(run.valid[at], ends).to(run.settings.device)
        if run.objective.hides:
            reseed(run.seed, f"validation {at}")  # the same places each time
        with arithmetic(run.settings):
            _, part, stats = run.forward_pass(objective, batch, run.clock)
        if run.carries:
            ends = {at: run.take_end()}
        if mine:
            nll, weight, right = nll + stats["nll"], weight + part, right + stats.get("right", 0.0)
    run.model.train()
    nll, weight, right = team.sums([nll, weight, right])
    if not weight > 0:
        raise ValueError("no target of the validation set counts: give it more text")
    return Validation(nll / weight, right / weight if run.model.labels is not None else None)


def _shares(run: Run) -> Iterator[tuple[int, bool]]:
    """The batches that this process reads, and whether it is the one that counts them."""
    count, team = len(run.valid), run.team
    if run.carries:  # each goes on where the one before ended: all processes read them all
        yield from ((at, at % team.size == team.rank) for at in range(count))
        return
    # Every process makes as many passes, since sharded weights are gathered by all of them at once.
    for at in range(team.rank, -(-count // team.size) * team.size, team.size):
        yield min(at, count - 1), at < count
