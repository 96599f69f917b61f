"""How well the model predicts text that it does not learn from.

−log p = Σ_b Σ_j −log p(y_j | y_{<j}, x) / Σ_b w_b
"""

from __future__ import annotations

import torch

from unspool.objectives.cross_entropy import CrossEntropy
from unspool.training.precision import arithmetic
from unspool.training.state import Run


@torch.no_grad()
def validate(run: Run) -> float:
    """−log p of a target, over all batches of the validation set, without dropout. Every process must ask."""
    run.model.eval()
    objective, team = CrossEntropy(), run.team
    nll = weight = 0.0
    # Every process makes as many passes, since sharded weights are gathered by all of them at once.
    for at in range(team.rank, -(-len(run.valid) // team.size) * team.size, team.size):
        batch = run.valid[min(at, len(run.valid) - 1)].to(run.settings.device)
        with arithmetic(run.settings):
            _, part, stats = run.walk(objective, batch, run.clock)
        if at < len(run.valid):
            nll, weight = nll + stats["nll"], weight + part
    run.model.train()
    nll, weight = team.sums([nll, weight])
    if not weight > 0:
        raise ValueError("no target of the validation set counts: give it more text")
    return nll / weight
