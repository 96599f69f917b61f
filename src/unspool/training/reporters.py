"""Reporters of a training run: a progress bar, lines of text or JSON, or only warnings."""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import TextIO

from unspool.errors import message_line
from unspool.training.run_state import Run
from unspool.training.update import Update


class Reporter:
    """Consumes the updates of the loop. This one issues Python warnings only; the default of `us.train`."""

    has_progress_bar = False
    """True to show progress bars before the first update."""

    def note(self, text: str) -> None:
        """Show a note."""

    def warn(self, text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=2)

    def follow(self, updates: Iterator[Update], run: Run) -> None:  # noqa: ARG002
        for _ in updates:
            pass


class NoReports(Reporter):
    """Silent; for all processes except the first."""

    def warn(self, text: str) -> None: ...


class StandardErrorReporter(Reporter):
    """Writes notes and warnings to standard error."""

    def note(self, text: str) -> None:
        print(f"unspool: {message_line(text)}", file=sys.stderr)

    warn = note


class LineReporter(StandardErrorReporter):
    """Prints a line for each point of the curves, as text or JSON."""

    def __init__(self, file: TextIO | None = None, *, as_json: bool = False) -> None:
        self._file, self._json = file or sys.stdout, as_json

    def follow(self, updates: Iterator[Update], run: Run) -> None:
        pace = Speed(run)
        for done in updates:
            pace.count(done)
            at = done.clock.update
            if at % run.settings.log_every and done.valid is None and at < done.clock.updates:
                continue
            record = {
                "update": at,
                "epoch": done.clock.epoch,
                "loss": done.loss,
                "nll": None if math.isnan(done.nll) else done.nll,
                "norm": done.norm,
                "lr": done.lr,
                "valid": done.valid,
                "checkpoint": done.saved,
                "targets_per_second": pace.speed,
            }
            if done.valid_score is not None:
                record[run.settings.measure] = done.valid_score
            if done.accuracy is not None:
                record |= {"accuracy": done.accuracy, "valid_accuracy": done.valid_accuracy}
            line = (
                json.dumps(record)
                if self._json
                else f"update {at}/{done.clock.updates}  {update_line(done, pace)}"
            )
            print(line, file=self._file, flush=True)


class BarReporter(StandardErrorReporter):
    """A progress bar with remaining time, loss, perplexity and speed."""

    has_progress_bar = True

    def follow(self, updates: Iterator[Update], run: Run) -> None:
        """Draw during the run; validations stay above the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console, drawn = Console(stderr=True), BarColumn()
        pace = Speed(run)
        with Progress(drawn, TextColumn("{task.fields[text]}"), console=console, refresh_per_second=4) as bar:
            task = bar.add_task("train", total=run.settings.updates, completed=run.progress.update, text="")
            for done in updates:
                pace.count(done)
                words = join_fitting(describe_update(done, pace), console.width - MIN_BAR_WIDTH - 1)
                drawn.bar_width = max(MIN_BAR_WIDTH, min(MAX_BAR_WIDTH, console.width - len(words) - 1))
                bar.update(task, completed=done.clock.update, text=words)
                if done.valid is not None:
                    quality = _format_quality(done.valid, done.valid_accuracy)
                    if done.valid_score is not None:
                        quality += f", {run.settings.measure} {done.valid_score:.1f}"
                    bar.console.print(f"update {done.clock.update}: validation {done.valid:.4f}, {quality}")


MIN_BAR_WIDTH, MAX_BAR_WIDTH = 4, 40
"""Columns of the bar."""


class Speed:
    """Targets per second and remaining time, averaged over about a minute."""

    def __init__(self, run: Run) -> None:
        self._left = run.settings.updates - run.progress.update
        self._seconds, self._targets, self._updates = 0.0, 0.0, 0.0
        self._learning, self._last = 0.0, time.monotonic()

    def count(self, done: Update) -> None:
        now = time.monotonic()
        took, self._last = now - self._last, now
        keep = math.exp(-took / 60.0)
        self._seconds = keep * self._seconds + took
        self._learning = keep * self._learning + done.seconds
        self._targets = keep * self._targets + done.weight
        self._updates = keep * self._updates + 1.0
        self._left -= 1

    @property
    def speed(self) -> float:
        """Targets per second, without validations and checkpoints."""
        return self._targets / max(self._learning, 1e-9)

    @property
    def left(self) -> float:
        """Seconds until the last update, with validations and checkpoints."""
        return self._left * self._seconds / max(self._updates, 1e-9)


def describe_update(done: Update, pace: Speed) -> list[str]:
    """Describe an update in short phrases, the most important first."""
    if math.isnan(done.nll) and done.accuracy is None:
        quality = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in done.parts.items()]
    else:
        quality = [_format_quality(done.nll, done.accuracy)]
    return [
        f"{done.clock.update}/{done.clock.updates}",
        f"{format_duration(pace.left)} left",
        f"loss {done.loss:.3f}",
        *quality,
        f"{pace.speed:,.0f} {'tokens' if done.accuracy is None else 'labels'}/s",
    ]


def join_fitting(words: Sequence[str], room: int) -> str:
    """Join as many phrases as fit into the width, at least the first."""
    lines = ["  ".join(words[:count]) for count in range(1, len(words) + 1)]
    return max((line for line in lines if len(line) <= room), key=len, default=lines[0])


def update_line(done: Update, pace: Speed) -> str:
    _, left, *words = describe_update(done, pace)
    if done.valid is not None:
        words.append(f"validation {done.valid:.4f}")
    if done.valid_accuracy is not None:
        words.append(f"validation {_format_quality(0.0, done.valid_accuracy)}")
    if done.valid_score is not None:
        words.append(f"score {done.valid_score:.1f}")
    return "  ".join([*words, left])


def _format_quality(nll: float, accuracy: float | None) -> str:
    """Format the accuracy of labels, or the perplexity of text."""
    return f"perplexity {perplexity(nll)}" if accuracy is None else f"accuracy {accuracy:.1%}"


def perplexity(nll: float) -> str:
    return f"{math.exp(nll):,.2f}" if nll < 700 else "∞"


def format_duration(seconds: float) -> str:
    """Format seconds as hours:minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
