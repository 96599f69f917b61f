"""Engines started, measured mode by mode and shown, on a number of threads."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from peers.lineup import REFERENCE, Contender
from peers.process import EngineFailedError, EngineProcess
from peers.rounds import Result, first_difference, measure, result
from peers.starting import Bandwidth, start
from peers.tables import Start, speed_table, start_table
from peers.work import Mode

FIRST_PROMPT = 16
"""Tokens of the prompt before the first token."""


@dataclass(frozen=True)
class Comparison:
    """What everybody does: the modes, with as many new tokens, in as many rounds."""

    title: str
    modes: list[Mode]
    prompts: list[list[int]]
    new: int
    rounds: int


@dataclass(frozen=True)
class Found:
    """What came out on a number of threads."""

    starts: dict[str, Start]
    modes: dict[str, dict[str, Result]]
    bytes_per_second: list[float]
    """What a plain loop read in every round."""


def compare(comparison: Comparison, contenders: list[Contender], threads: int, console: Console) -> Found:
    """Who cannot be started is left out in words."""
    found = Found({}, {}, [])
    engines: dict[str, EngineProcess] = {}
    progress = Console(stderr=True)
    with ExitStack() as stack:
        for contender in contenders:
            try:
                process, cost, _ = start(contender, threads, comparison.prompts[0][:FIRST_PROMPT])
            except EngineFailedError as error:
                console.print(f"{contender.name} is left out: {error}", style="yellow", markup=False)
                continue
            stack.callback(process.close)
            engines[contender.name], found.starts[contender.name] = process, cost
            progress.print(f"{contender.name} is ready", style="dim")
        bandwidth = Bandwidth(threads)
        stack.callback(bandwidth.process.close)
        for mode in comparison.modes:
            work = mode.work(comparison.prompts, comparison.new)
            answers, read = measure(
                engines,
                work,
                comparison.rounds,
                bandwidth,
                lambda line, mode=mode: progress.print(f"{mode}, {line}", style="dim"),
            )
            found.bytes_per_second.extend(read)
            found.modes[str(mode)] = {
                name: result(its, answers.get(REFERENCE), work, found.starts[name].weight_bytes, read)
                for name, its in answers.items()
            }
    _show(comparison, contenders, threads, found, console)
    return found


def _show(
    comparison: Comparison, contenders: list[Contender], threads: int, found: Found, console: Console
) -> None:
    title = (
        f"{comparison.title}, {threads} thread(s), {comparison.new} new tokens, {comparison.rounds} rounds"
    )
    read = [speed / 1e9 for speed in found.bytes_per_second]
    limit = f"a plain loop reads {median(read):.1f} GB/s ({min(read):.1f}–{max(read):.1f})"
    console.print(speed_table(f"{title}; {limit}", found.modes))
    console.print(start_table(f"memory and start, {threads} thread(s)", found.starts))
    exact = {it.name for it in contenders if it.exact}
    for mode in comparison.modes:
        for line in same_text(mode, found.modes[str(mode)], exact):
            console.print(line, markup=False)


def same_text(mode: Mode, results: Mapping[str, Result], exact: set[str]) -> list[str]:
    """Who of those that compute in float32 wrote what the reference wrote, and where the others parted."""
    if not mode.greedy or REFERENCE not in results:
        return []
    lines = []
    for name in (name for name in results if name in exact and name != REFERENCE):
        at = first_difference(results[name].tokens, results[REFERENCE].tokens)
        lines.append(
            f"{mode}: {name} wrote the text of {REFERENCE}"
            if at is None
            else f"{mode}: {name} DIFFERS from {REFERENCE} at token {at}"
        )
    return lines


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    wide = any("avx512f" in line.split() for line in lines if line.startswith("flags"))
    return {"platform": platform.platform(), "processor": model, "cores": os.cpu_count(), "avx512": wide}


def write_json(path: Path, by_threads: Mapping[int, Found]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {str(threads): asdict(it) for threads, it in by_threads.items()}
    path.write_text(json.dumps({"machine": machine(), "threads": found}, indent=1), encoding="utf-8")
