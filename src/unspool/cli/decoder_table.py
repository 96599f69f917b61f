"""A comparison of decoders on a terminal: a table where there is room for one, else a paragraph for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unspool.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

    from unspool.evaluate.comparison import DecoderRow

COLUMNS = ("log p", "rep-4", "dist-1", "dist-2", "loop", "len", "tok/s")
ROOM = 90
"""Columns of the terminal from which on the texts have enough of them beside the numbers."""
PIPED = 100
"""Columns where there is no terminal."""


def print_table(rows: Sequence[DecoderRow], prompts: Sequence[str]) -> None:
    """Every decoder with its measures and its answer to the first prompt."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal and console.width < PIPED:
        console.width = PIPED
    many = f"{len(prompts)} prompts; the texts below answer the first: " if len(prompts) > 1 else ""
    console.print(Text(many + printable(prompts[0]), style="italic"))
    if console.width >= ROOM:
        console.print(_table(rows))
        return
    for row in rows:
        measures = "  ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, cells(row), strict=True))
        console.print(_said(row), Text(measures, style="dim"), "", sep="\n", overflow="fold")


def _table(rows: Sequence[DecoderRow]) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_lines=False, pad_edge=False, expand=True)
    table.add_column("decoder and its text", ratio=1, overflow="fold")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(_said(row).append("\n"), *cells(row))
    return table


def _said(row: DecoderRow) -> Text:
    from rich.text import Text

    text = re.sub(r"\s*\n\s*", " ⏎ ", row.answers[0].text.strip())
    return Text.assemble((printable(row.decoder), "bold"), "\n", printable(text))


def cells(row: DecoderRow) -> tuple[str, ...]:
    """The measures of a decoder, in the order of COLUMNS."""
    shares = (f"{share:.2f}" for share in (row.mean_logp, row.rep_4, row.distinct_1, row.distinct_2))
    return (*shares, row.loop_words, f"{row.length:.0f}", f"{row.speed:.1f}")
