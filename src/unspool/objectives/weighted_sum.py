"""Several objectives at once: a main one, and others beside it by weight, each switched on at its update.

    L = L_main + Σ_i λ_i · L_i · [update ≥ begin_i]

McAllester's problems on attention, 1(b, c), for losses on attention (papers.bib: mcallester2020problems);
Wu et al. 2016, eq. 9, for expected reward beside likelihood (papers.bib: wu2016google).

Whatever is off costs nothing: the main objective is called as if there were no other. What is on shares one
forward pass over the batch (`shared_pass`). An objective's clock begins when it is switched on. Stats of the
main objective keep their names; what the others say under names of the main one is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from unspool.data.batch import Batch
from unspool.objectives.shared_pass import SharedPass
from unspool.protocols import Clock, Loss, Objective, Trainable


@dataclass(frozen=True)
class Share:
    """How much an objective counts beside the main one, and from when; all other keys are the objective's."""

    weight: float = 1.0
    """λ: what it is multiplied by; the main objective has 1. With 0 it is not computed."""
    begin: int = 0
    """Updates before it is switched on."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"weight={self.weight} must be at least 0, and finite")
        if self.begin < 0:
            raise ValueError(f"begin={self.begin} must be at least 0: the update at which it is switched on")


@dataclass(frozen=True)
class WeightedSum(Objective):
    """The main objective, and others beside it."""

    main: Objective
    others: tuple[tuple[Objective, Share], ...]

    @property
    def own_batches(self) -> bool:
        """Whether one of them does."""
        return any(it.own_batches for it in (self.main, *(it for it, _ in self.others)))

    @property
    def hides(self) -> bool:
        """Whether the main one does."""
        return self.main.hides

    @property
    def rewarded(self) -> bool:
        """Whether one of them does, and is ever on."""
        return self.main.rewarded or any(it.rewarded and share.weight > 0 for it, share in self.others)

    def check(self, model: Trainable) -> None:
        """Refuse a model that one of them cannot teach."""
        for objective in (self.main, *(it for it, _ in self.others)):
            objective.check(model)

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """The sum over the batch."""
        on = [(it, share) for it, share in self.others if share.weight > 0 and clock.update >= share.begin]
        if not on:
            return self.main(model, batch, clock)
        watched = any(it.watches for it in (self.main, *(it for it, _ in on)))
        shared: Any = SharedPass(model, batch, watched=watched)
        main = self.main(_reader(self.main, model, shared), batch, clock)
        total, stats = main.total, dict(main.stats)
        for objective, share in on:
            since = replace(clock, update=clock.update - share.begin)
            found = objective(_reader(objective, model, shared), batch, since)
            # Each is divided by its own weight, and by the main one's once updates are added up.
            scale = main.weight / found.weight if found.weight else 0.0
            total = total + share.weight * scale * found.total
            stats = {name: scale * it for name, it in found.stats.items()} | stats
        return Loss(total, main.weight, stats)


def _reader(objective: Objective, model: Trainable, shared: Any) -> Any:
    """What an objective reads: the model itself if it has rows of its own, else the shared pass."""
    return model if objective.own_batches else shared
