"""The one loop: update, look, validate, keep, and tell. A generator, so that whoever watches it may stop it.

    for update in training(run): print(update.loss)

What is random in an update depends on the run's seed and the numbers of its batches only, so that a run that
was killed and resumed goes on as if nothing had happened, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from unspool.training.run_state import LogWindow, Run
from unspool.training.update import Update, apply_update
from unspool.training.validation import greedy_score, validate


class RunWriter(Protocol):
    """Where a run is written to."""

    def point(self, run: Run, point: dict[str, float]) -> None:
        """One more point of the curves."""
        ...

    def checkpoint(self, run: Run, *, regular: bool) -> str | None:
        """Everything that is needed to go on. Every process must ask; a regular one counts for averages."""
        ...


class Stopped(Exception):  # noqa: N818 — it is no error
    """The run was asked to stop; what it had done is kept."""

    signal: int | None = None
    """By which signal, if by one."""


def training_loop(
    run: Run, keeper: RunWriter | None = None, asked: Callable[[], bool] = lambda: False
) -> Iterator[Update]:
    """Update until the run is over; Stopped if `asked` says so, after a last checkpoint."""
    settings, progress = run.settings, run.progress
    began, kept = time.monotonic() - progress.seconds, time.monotonic()
    while not run.over:
        done, batch = apply_update(run, stopping=asked())
        for hook in run.hooks:
            hook(run.model, run.optimizer, batch, run.clock)
        progress.seconds = time.monotonic() - began
        _add_to_window(progress.window, done)
        at, last = progress.update, progress.update >= settings.updates
        if at % settings.log_every == 0 or last:
            point = _curve_point(run, done)
            if keeper is not None:
                keeper.point(run, point)
        better = False
        if run.valid and (at % settings.validate_every == 0 or last):
            found = validate(run)
            score = greedy_score(run)
            done = replace(done, valid=found.nll, valid_accuracy=found.accuracy, valid_score=score)
            better = _record_validation(run, done)
            progress.seconds = time.monotonic() - began
            if keeper is not None:
                rate = {} if found.accuracy is None else {"accuracy": found.accuracy}
                rate |= {} if score is None else {settings.measure: score}
                keeper.point(run, {"update": at, "epoch": done.clock.epoch, "valid": found.nll, **rate})
        if keeper is not None:
            regular = at % settings.checkpoint_every == 0 or run.over
            late = _is_checkpoint_due(run, time.monotonic() - kept)
            if regular or done.stop or late or (better and settings.final == "best"):
                done = replace(done, saved=keeper.checkpoint(run, regular=regular))
                kept = time.monotonic()
        yield done
        if done.stop and not run.over:
            raise Stopped(f"stopped after update {at} of {settings.updates}")


def _add_to_window(window: LogWindow, done: Update) -> None:
    window.loss += done.loss * done.weight
    window.nll += done.nll * done.weight
    window.weight += done.weight
    window.updates += 1
    for name, value in done.parts.items():
        window.parts[name] = window.parts.get(name, 0.0) + value * done.weight


def _curve_point(run: Run, done: Update) -> dict[str, float]:
    window, run.progress.window = run.progress.window, LogWindow()
    return {
        "update": run.progress.update,
        "epoch": done.clock.epoch,
        "loss": window.loss / window.weight,
        # An objective may say nothing of likelihood, and JSON has no word for that.
        **({} if math.isnan(window.nll) else {"nll": window.nll / window.weight}),
        **{name: total / window.weight for name, total in window.parts.items()},
        "norm": done.norm,
        "lr": done.lr,
        "targets": run.progress.targets,
        "seconds": run.progress.seconds,
    }


def _record_validation(run: Run, done: Update) -> bool:
    """Whether this validation is the best so far; patience runs out if it is not."""
    progress = run.progress
    loss = math.inf if done.valid is None else done.valid
    score = done.valid_score
    first = not progress.best_update
    if loss < progress.best if score is None else first or score > progress.best:
        progress.best = loss if score is None else score
        progress.best_update, progress.stalled = progress.update, 0
        return True
    progress.stalled += 1
    return False


def _is_checkpoint_due(run: Run, seconds: float) -> bool:
    limit = run.settings.checkpoint_seconds
    if limit is None:
        return False
    return run.team.sums([float(seconds >= limit)])[0] > 0
