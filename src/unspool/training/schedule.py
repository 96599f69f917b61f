"""The learning rate as a share of its peak, update by update, after a linear warm-up of w updates.

    constant        min(t/w, 1)
    inverse_sqrt    min(t/w, √(w/t))                               Vaswani et al. 2017, eq. 3, with peak 1
    cosine          t/w, then f + (1 − f)·(1 + cos(π·(t − w)/(T − w)))/2      Loshchilov & Hutter 2017, eq. 5

t = 1, 2, …, T counts updates (papers.bib: vaswani2017attention, loshchilov2017sgdr). Differs from the papers:
inverse_sqrt leaves the peak to the setting `lr`, where Vaswani et al. derive it from width and warm-up;
cosine falls once, with no restarts, to the share f of the peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[int, int], float]
"""(update, updates of the whole run) → share of the peak."""


def _warming(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0


def _check(warmup: int, least: int) -> None:
    if warmup < least:
        raise ValueError(f"warmup={warmup} must be at least {least} update(s)")


@dataclass(frozen=True)
class Constant:
    """The peak for ever."""

    warmup: int = 0
    """Updates until the peak is reached."""

    def __post_init__(self) -> None:
        _check(self.warmup, 0)

    def __call__(self, update: int, updates: int) -> float:  # noqa: ARG002
        """The share of the peak at this update (1 is the first)."""
        return _warming(update, self.warmup)


@dataclass(frozen=True)
class InverseSqrt:
    """Falls with the square root of time; knows nothing of the run's end."""

    warmup: int = 400
    """Updates until the peak is reached."""

    def __post_init__(self) -> None:
        _check(self.warmup, 1)

    def __call__(self, update: int, updates: int) -> float:  # noqa: ARG002
        """The share of the peak at this update (1 is the first)."""
        return min(update / self.warmup, math.sqrt(self.warmup / update))


@dataclass(frozen=True)
class Cosine:
    """Half a wave from the peak to `floor` at the run's end."""

    warmup: int = 100
    """Updates until the peak is reached."""
    floor: float = 0.1
    """The share of the peak at the run's end."""

    def __post_init__(self) -> None:
        _check(self.warmup, 0)
        if not 0.0 <= self.floor <= 1.0:
            raise ValueError(f"floor={self.floor} is a share of the peak: give 0 to 1")

    def __call__(self, update: int, updates: int) -> float:
        """The share of the peak at this update (1 is the first)."""
        if update <= self.warmup:
            return _warming(update, self.warmup)
        way = min(1.0, (update - self.warmup) / max(1, updates - self.warmup))
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * way))


SCHEDULES: dict[str, type[Constant] | type[InverseSqrt] | type[Cosine]] = {
    "constant": Constant,
    "cosine": Cosine,
    "inverse_sqrt": InverseSqrt,
}
