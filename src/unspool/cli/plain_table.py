"""A table of short cells: the first column to the left, the others to the right."""

from __future__ import annotations

from collections.abc import Sequence

from unspool.printable import printable

PIPED = 120
"""Columns where there is no terminal."""


def print_rows(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print it; what is too wide for the terminal is folded, and nothing is cut."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(cell) for cell in row))
    console = Console(markup=False)
    if not console.is_terminal and console.width < PIPED:
        console.width = PIPED
    console.print(table)
