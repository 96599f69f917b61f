"""How far a long command has come: a bar and an estimate on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted(total: int, *, shown: bool) -> Iterator[Callable[..., None]]:
    """A function to call after each prompt that is done, or after several of them, with their number."""
    if not shown or not sys.stderr.isatty():
        yield lambda count=1: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda count=1: progress.advance(task, count)
