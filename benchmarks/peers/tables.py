"""Results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from peers.rounds import Result

MEGA = 1e6


@dataclass(frozen=True)
class Start:
    """What it costs an engine to be there: seconds and memory of a process of its own."""

    version: str
    weight_bytes: int
    imported: float
    """Seconds for Python and the libraries."""
    loaded: float
    """Seconds from there to being ready."""
    first_token: float
    """Seconds from there to the first token after the prompt, loading included."""
    memory: dict[str, int]
    """Bytes after a text: resident, of these its own, and the highest so far."""


def speed_table(title: str, results: Mapping[str, Mapping[str, Result]]) -> Table:
    table = Table(title=title)
    for name in ("mode", "engine"):
        table.add_column(name, no_wrap=True)
    for name in ("tokens/s", "× Hugging Face", "spread", "of the limit"):
        table.add_column(name, justify="right", no_wrap=True)
    for mode, by_engine in results.items():
        for engine, it in by_engine.items():
            table.add_row(
                *(mode, engine, f"{it.tokens_per_second:.1f}"),
                f"{median(it.ratios):.2f}" if it.ratios else "–",
                spread(it.ratios),
                f"{median(it.shares):.0%}",
            )
        table.add_section()
    return table


def spread(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–"


def start_table(title: str, starts: Mapping[str, Start]) -> Table:
    table = Table(title=title)
    table.add_column("engine", no_wrap=True)
    for name in ("weights MB", "resident MB", "own MB", "peak MB", "import s", "load s", "first token s"):
        table.add_column(name, justify="right", no_wrap=True)
    for engine, it in starts.items():
        sizes = (it.memory.get(key) for key in ("resident", "own", "peak"))
        table.add_row(
            *(engine, f"{it.weight_bytes / MEGA:.0f}"),
            *("–" if size is None else f"{size / MEGA:.0f}" for size in sizes),
            *(f"{seconds:.2f}" for seconds in (it.imported, it.loaded, it.first_token)),
        )
    return table
