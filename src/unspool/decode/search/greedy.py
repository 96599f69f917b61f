"""Greedy search: the most probable token at every step.

    y_t = argmax_i log p(i | y_{<t})

Transforms (penalties, say) may reshape the scores first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspool.decode.job import Frontier, Job
from unspool.decode.picks.argmax import ArgMax
from unspool.decode.search.reshape import check_transforms, prepared
from unspool.decode.search.token_loop import run_rows
from unspool.protocols import StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class Greedy:
    """Greedy(): the same text every time."""

    transforms: tuple[Transform, ...]

    def __init__(self, *transforms: Transform) -> None:
        check_transforms("Greedy", transforms)
        object.__setattr__(self, "transforms", transforms)

    def __repr__(self) -> str:
        return f"Greedy({', '.join(map(repr, self.transforms))})"

    @property
    def streams(self) -> bool:
        """A chosen token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each token chosen."""
        return run_rows(model, job, prepared(self.transforms, model, job), ArgMax())
