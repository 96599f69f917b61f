"""The training loop: update, log, validate, write checkpoints. A generator, so that callers can stop it.

    for update in training_loop(run): print(update.loss)

Random numbers of an update depend only on the run's seed and on the numbers of its batches: a killed and
resumed run equals an uninterrupted one, bit for bit. Ctrl-C and SIGTERM stop a run after its current update;
a second signal stops it at once.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from unspool.training.run_folder import RunFolder
from unspool.training.run_state import LogWindow, Run
from unspool.training.update import Update, apply_update
from unspool.training.validation import greedy_score, validate


class Stopped(Exception):  # noqa: N818 — not an error
    """The run was stopped after a checkpoint."""

    signal: int | None = None
    """The signal that stopped it, if any."""


def training_loop(
    run: Run, folder: RunFolder | None = None, is_stopping: Callable[[], bool] = lambda: False
) -> Iterator[Update]:
    """Run updates until the end; if `is_stopping` returns True, write a checkpoint and raise Stopped."""
    settings, progress = run.settings, run.progress
    began = time.monotonic() - progress.seconds
    while not run.over:
        done, batch = apply_update(run, stopping=is_stopping())
        for hook in run.hooks:
            hook(run.model, run.optimizer, batch, run.clock)
        progress.seconds = time.monotonic() - began
        _add_to_window(progress.window, done)
        at, last = progress.update, progress.update >= settings.updates
        if at % settings.log_every == 0 or last:
            point = _curve_point(run, done)
            if folder is not None:
                folder.add_point(point)
        better = False
        if run.valid and (at % settings.validate_every == 0 or last):
            found = validate(run)
            score = greedy_score(run)
            done = replace(done, valid=found.nll, valid_accuracy=found.accuracy, valid_score=score)
            better = _record_validation(run, done)
            progress.seconds = time.monotonic() - began
            if folder is not None:
                rate = {} if found.accuracy is None else {"accuracy": found.accuracy}
                rate |= {} if score is None else {settings.measure: score}
                folder.add_point({"update": at, "epoch": done.clock.epoch, "valid": found.nll, **rate})
        if folder is not None:
            regular = at % settings.checkpoint_every == 0 or run.over
            if regular or done.stop or (better and settings.final == "best"):
                done = replace(done, saved=folder.checkpoint(run, regular=regular))
        yield done
        if done.stop and not run.over:
            raise Stopped(f"stopped after update {at} of {settings.updates}")


def _add_to_window(window: LogWindow, done: Update) -> None:
    window.loss += done.loss * done.weight
    window.nll += 0.0 if math.isnan(done.nll) else done.nll * done.weight  # a checkpoint is JSON without NaN
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
        **({} if math.isnan(done.nll) else {"nll": window.nll / window.weight}),
        **{name: total / window.weight for name, total in window.parts.items()},
        "norm": done.norm,
        "lr": done.lr,
        "targets": run.progress.targets,
        "seconds": run.progress.seconds,
    }


def _record_validation(run: Run, done: Update) -> bool:
    """Record a validation; return True if it is the best so far."""
    progress = run.progress
    loss = math.inf if done.valid is None else done.valid
    score, best = done.valid_score, progress.best
    if best is None or (loss < best if score is None else score > best):
        progress.best = loss if score is None else score
        progress.best_update, progress.stalled = progress.update, 0
        return True
    progress.stalled += 1
    return False


SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEAT_SECONDS = 1.0


class StopRequest:
    """A request to stop the run; calling it returns True after a signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of stopping at once; only the main thread receives signals."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before: dict[int, Any] = {}

    first = math.inf

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal first
        if request.signal is None:
            request.signal, first = number, time.monotonic()
        elif time.monotonic() - first > REPEAT_SECONDS:
            for caught, handler in before.items():
                signal.signal(caught, handler)
            os.kill(os.getpid(), number)

    for number in SIGNALS:
        before[number] = signal.signal(number, note)
    try:
        yield request
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
