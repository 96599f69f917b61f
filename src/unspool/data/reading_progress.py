"""How far a long reading has come: a bar with the time left, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Called with the number of bytes (or rows) just read."""


def silent(_amount: int) -> None:
    """Shows nothing."""


@contextmanager
def metered(what: str, total: int, show: bool) -> Iterator[Advance]:
    """A bar on standard error that `total` fills (0: nobody knows how much it is); none without `show`."""
    if not show:
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total or None)
        waiting = 0

        def advance(amount: int) -> None:
            nonlocal waiting
            waiting += amount
            if waiting >= max(total / 500, 1000):  # the bar is too slow to be told about every line
                bar.advance(task, waiting)
                waiting = 0

        yield advance
