"""Copying by source length, with a fixed context vector and with attention.

    python benchmarks/lengths.py --json out/lengths.json --figure docs/img/lengths.svg

One recurrent encoder–decoder with five kinds of context: the encoder's last state, the mean of its states, and attention
with a dot, bilinear or additive score. All have the same widths, read in one direction (the dot score needs that), and
train on the same batches for the same number of updates: rows of 1 to 20 of 20 symbols. They are tested on held-out rows
of fixed lengths, including longer ones than in training; an answer counts if every symbol is right. Each run is saved
when it ends; runs that --json already contains are skipped.
Bahdanau et al. 2015, fig. 2, show the same for translation (papers.bib: bahdanau2015neural).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from unspool.lab.small_models import share_copied
from unspool.plots.canvas import BLUE, GREEN, ORANGE, RED, SOFT, canvas
from unspool.training import train

CONTEXTS = {"additive": BLUE, "bilinear": GREEN, "dot": SOFT, "mean": ORANGE, "last": RED}
SYMBOLS, LONGEST = 20, 20
LENGTHS = (4, 8, 12, 16, 20, 24, 28)
SOURCES = 100


def recipe(context: str, seed: int, updates: int, width: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "data": {
            "kind": "task",
            "task": {"kind": "copy", "symbols": SYMBOLS, "longest": LONGEST},
            "train": 20_000,
            "valid": 100,
            "seed": seed,
        },
        "tokenizer": {"kind": "words"},
        "batches": {"kind": "bucketed", "tokens": 1024},
        "model": {"kind": "rnn_seq2seq", "width": width, "bidirectional": False, "context_kind": context},
        "schedule": {"kind": "cosine", "warmup": 50},
        "train": {
            "updates": updates,
            "lr": 1e-2,
            "validate_every": updates,
            "checkpoint_every": updates,
            "threads": 1,
        },
    }


def measure(context: str, seed: int, updates: int, width: int) -> dict[str, Any]:
    start = time.process_time()
    model = train(recipe(context, seed, updates, width))
    trained = time.process_time() - start
    return {
        "right": {str(length): share_copied(model, length, SOURCES, SYMBOLS) for length in LENGTHS},
        "weights": sum(it.numel() for it in model.parameters()),
        "updates": updates,
        "cpu_seconds": trained,
    }


def mean_right(runs: dict[str, Any], length: int) -> float:
    return sum(run["right"][str(length)] for run in runs.values()) / len(runs)


def show(found: dict[str, Any], console: Console) -> None:
    table = Table(title=f"copied without a mistake, % (learnt from 1 to {LONGEST} symbols)")
    for column in ("context", "weights", "seeds", *map(str, LENGTHS), "CPU s"):
        table.add_column(column, justify="right")
    for context, runs in found.items():
        seconds = sum(run["cpu_seconds"] for run in runs.values()) / len(runs)
        shares = [f"{100 * mean_right(runs, length):.0f}" for length in LENGTHS]
        weights = next(iter(runs.values()))["weights"]
        table.add_row(context, str(weights), str(len(runs)), *shares, f"{seconds:.0f}")
    console.print(table)


def draw(found: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with canvas(path, 6.4, 3.4) as figure:
        axes = figure.subplots()
        axes.axvspan(LONGEST, LENGTHS[-1] + 1, color="#f0f0f0", zorder=0)
        axes.text(LONGEST + 0.3, 103, "longer than learnt from", fontsize=8, color="#555555")
        for context, runs in found.items():
            style = "s--" if context in ("last", "mean") else "o-"
            name = f"fixed: {context}" if context in ("last", "mean") else f"attention: {context}"
            shares = [100 * mean_right(runs, length) for length in LENGTHS]
            axes.plot(LENGTHS, shares, style, color=CONTEXTS[context], label=name, markersize=4)
        axes.set(
            xlabel="symbols to copy",
            ylabel="copied without a mistake, %",
            xticks=LENGTHS,
            xlim=(LENGTHS[0] - 1, LENGTHS[-1] + 1),
            ylim=(-3, 110),
        )
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {context: {} for context in CONTEXTS}
    if args.json is not None and args.json.exists():
        found |= json.loads(args.json.read_text(encoding="utf-8"))
    for seed in args.seeds:
        for context in CONTEXTS:
            if str(seed) in found[context]:
                continue
            found[context][str(seed)] = measure(context, seed, args.updates, args.width)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found, Console(width=None if sys.stdout.isatty() else 120))
    if args.figure is not None:
        draw(found, args.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
