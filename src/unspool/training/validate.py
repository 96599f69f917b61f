"""How well the model predicts text that it does not learn from.

    language model, encoder–decoder   −log p = Σ −log p(y_j | y_{<j}, x) / Σ 1    over tokens and EOS of texts
    classifier, tagger                −log p = Σ −log p(y_j | x) / Σ 1            over labels
    masked models                     −log p = Σ w_j −log p(y_j | y_shown, x) / Σ w_j + Σ −log p(T | x) / Σ T
    accuracy                          Σ [y_j is the most probable label] / Σ 1

Masked models: over the hidden tokens of texts and their EOS, each of which counts w_j times; p(T | x) is that
of the length, where the model foresees it. The number is that of a token or a label in every case, so that
exp(−log p) can be compared; padding never counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.objectives.cross_entropy import CrossEntropy
from unspool.training.precision import arithmetic
from unspool.training.run_state import Run
from unspool.training.seeds import mixed, row_seeds


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
    objective, team = run.objective.validation or CrossEntropy(), run.team
    nll = weight = right = hidden = length = 0.0
    ends: dict[int, Tensor] = {}
    for at, mine in _shares(run):
        batch = run.begun(run.valid[at], ends).to(run.settings.device)
        if run.objective.validation is not None:  # the same places each time
            (seeds_N,) = row_seeds([batch], mixed(run.seed, f"validation {at}"))
            batch = replace(batch, seeds_N=seeds_N)
        with arithmetic(run.settings):
            _, part, stats = run.forward_pass(objective, batch, run.clock)
        if run.carries:
            ends = {at: run.take_end()}
        if mine:
            nll, weight, right = nll + stats["nll"], weight + part, right + stats.get("right", 0.0)
            hidden, length = hidden + stats.get("hidden", part), length + stats.get("length", 0.0)
    run.model.train()
    nll, weight, right, hidden, length = team.sums([nll, weight, right, hidden, length])
    if not (weight > 0 and hidden > 0):
        raise ValueError("no target of the validation set counts: give it more text")
    return Validation(
        nll / hidden + length / weight, right / weight if run.model.labels is not None else None
    )


def _shares(run: Run) -> Iterator[tuple[int, bool]]:
    """The batches that this process reads, and whether it is the one that counts them."""
    count, team = len(run.valid), run.team
    if run.carries:  # each goes on where the one before ended: all processes read them all
        yield from ((at, at % team.size == team.rank) for at in range(count))
        return
    # Every process makes as many passes, since sharded weights are gathered by all of them at once.
    for at in range(team.rank, -(-count // team.size) * team.size, team.size):
        yield min(at, count - 1), at < count
