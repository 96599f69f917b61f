"""How well the model predicts text that it does not learn from.

−log p = Σ_b Σ_j −log p(y_j | y_{<j}, x) / Σ_b w_b
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unspool.objectives.cross_entropy import CrossEntropy
from unspool.training.precision import arithmetic
from unspool.training.state import Run


@torch.no_grad()
def validate(run: Run) -> float:
    """−log p of a target, over all batches of the validation set, without dropout. Every process must ask."""
    run.model.eval()
    objective, team = CrossEntropy(), run.team
    nll = weight = 0.0
    ends: dict[int, Tensor] = {}
    for at, mine in _shares(run):
        batch = run.begun(run.valid[at], ends).to(run.settings.device)
        with arithmetic(run.settings):
            _, part, stats = run.walk(objective, batch, run.clock)
        if run.carries:
            ends = {at: run.take_end()}
        if mine:
            nll, weight = nll + stats["nll"], weight + part
    run.model.train()
    nll, weight = team.sums([nll, weight])
    if not weight > 0:
        raise ValueError("no target of the validation set counts: give it more text")
    return nll / weight


def _shares(run: Run) -> Iterator[tuple[int, bool]]:
    """The batches that this process reads, and whether it is the one that counts them."""
    count, team = len(run.valid), run.team
    if run.carries:  # each goes on where the one before ended: all processes read them all
        yield from ((at, at % team.size == team.rank) for at in range(count))
        return
    # Every process makes as many passes, since sharded weights are gathered by all of them at once.
    for at in range(team.rank, -(-count // team.size) * team.size, team.size):
        yield min(at, count - 1), at < count
