"""Ancestral sampling: draw each token from the model's distribution, reshaped by transforms.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

The transforms apply in the order written; between two of them the scores are normalised again. Each
row draws from its own random stream (`decode.rng`): the rest of the batch and its order do not change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspool.decode.job import Frontier, Job
from unspool.decode.picks.multinomial import Multinomial
from unspool.decode.search.reshape import check_transforms, prepared
from unspool.decode.search.token_loop import run_rows
from unspool.protocols import Bindable, Pick, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class Sample:
    """Sample(Temperature(0.8), TopP(0.9)): transforms in order; a pick may stand last."""

    transforms: tuple[Transform, ...]
    pick: Pick

    def __init__(self, *rules: Transform | Pick) -> None:
        *first, last = rules or (Multinomial(),)
        if isinstance(last, Pick) and not isinstance(last, type):
            transforms, pick = first, last
        else:
            transforms, pick = [*first, last], Multinomial()
        check_transforms("Sample", transforms)
        object.__setattr__(self, "transforms", tuple(transforms))
        object.__setattr__(self, "pick", pick)

    def __repr__(self) -> str:
        rules = [*self.transforms, *([] if self.pick == Multinomial() else [self.pick])]
        return f"Sample({', '.join(map(repr, rules))})"

    @property
    def streams(self) -> bool:
        """A drawn token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each token drawn."""
        transforms = prepared(self.transforms, model, job)
        pick = self.pick.bind(model, transforms) if isinstance(self.pick, Bindable) else self.pick
        return run_rows(model, job, transforms, pick)
