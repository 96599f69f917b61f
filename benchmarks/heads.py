"""Output heads at equal budget: softmax, mixture of softmaxes and KerBS, in a language model and in translation.

    python benchmarks/heads.py lm --train wiki.train.tokens --test wiki.test.tokens --json out/lm.json
    python benchmarks/heads.py translation --train train.tsv --test test.tsv --json out/mt.json

The language model is a GRU over the 10,000 most frequent words; the translator is a GRU encoder–decoder with additive
attention (`recipes/split_pairs.py` makes its files). All heads see the same batches for the same number of updates, with
one learning rate, untied from the embedding. KerBS has two senses per word on average, so it has more weights and a more
expensive step; two more softmaxes account for that: a wider one with as many weights, and one that trains for as much
processor time. The mixture is measured with the tanh of its paper and without, because our hidden vectors already come
out of a tanh. The ablations are those of the paper: senses without kernels (every θ stays 0), and senses that are never
reallocated. Perplexity and BLEU are measured on the test file.
Each run is saved with its settings when it ends. Runs that --json already contains are skipped; if their settings differ,
the script stops with an error.
Miao et al. 2019, §4 (papers.bib: miao2019kernelized).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import unspool as us
from unspool.evaluate.reference_overlap import overlap
from unspool.evaluate.teacher_forcing import perplexity
from unspool.training import train

REALLOCATE = [{"kind": "kerbs_reallocate", "every": 50}]
KERBS = {"kind": "kerbs", "senses": 2.0}
HEADS: dict[str, dict[str, Any]] = {
    "softmax": {"model": {"head": {"kind": "softmax", "tied": False}}},
    "softmax, wider": {"model": {"head": {"kind": "softmax", "tied": False}}, "wider": True},
    "softmax, longer": {"model": {"head": {"kind": "softmax", "tied": False}}, "longer": True},
    "mixture of 2": {"model": {"head": {"kind": "mixture", "tied": False, "experts": 2}}},
    "mixture of 2, no tanh": {
        "model": {"head": {"kind": "mixture", "tied": False, "experts": 2, "bent": False}}
    },
    "KerBS": {"model": {"head": KERBS}, "hooks": REALLOCATE},
    "KerBS, no kernel": {"model": {"head": {**KERBS, "kernel": False}}, "hooks": REALLOCATE},
    "KerBS, no allocation": {"model": {"head": KERBS}},
}
GREEDY, BEAM = "Greedy()", "Beam(5)"
LONGEST = 14
"""Tokens of a sentence to translate, and of its translation: the shorter, the sooner attention is learnt."""


def recipe(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    head = HEADS[name]
    width = args.wider if head.get("wider") else args.width
    updates = round(args.updates * args.longer) if head.get("longer") else args.updates
    found = {
        "seed": seed,
        "data": {"train": str(args.train), "valid_lines": 100},
        "schedule": {"kind": "cosine", "warmup": updates // 20},
        "train": {
            "updates": updates,
            "lr": args.lr,
            "validate_every": updates,
            "checkpoint_every": updates,
            "final": "last",
            "threads": 1,
        },
        "hooks": head.get("hooks", []),
    }
    made: dict[str, Any] = args.task_recipe(found, {"width": width, **head["model"]})
    return made


def language_model(found: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    found["data"] |= {"kind": "lines"}
    return found | {
        "tokenizer": {"kind": "words", "vocab_size": 10_000},
        "batches": {"kind": "packed", "rows": 16, "length": 35},
        "model": {"kind": "rnn_lm", "cell": "gru", "dropout": 0.2, **model},
    }


def translation(found: dict[str, Any], model: dict[str, Any]) -> dict[str, Any]:
    found["data"] |= {"kind": "tsv", "source": 2, "target": 1}
    return found | {
        "tokenizer": {"kind": "bpe", "vocab_size": 2000},
        "batches": {"kind": "bucketed", "tokens": 512, "max_length": LONGEST, "long": "drop"},
        "model": {"kind": "rnn_seq2seq", "cell": "gru", "context_kind": "additive", "dropout": 0.1, **model},
    }


def test_perplexity(model: Any, args: argparse.Namespace) -> dict[str, float]:
    lines = [line for line in args.test.read_text(encoding="utf-8").split("\n") if line.strip()]
    return {"perplexity": perplexity(model, lines[: args.limit], batch=16).value}


def test_bleu(model: Any, args: argparse.Namespace) -> dict[str, float]:
    rows = [line.split("\t") for line in args.test.read_text(encoding="utf-8").splitlines()]
    short = [row for row in rows if max(len(model.tokenizer.encode(it)) for it in row[:2]) <= LONGEST]
    rows = sorted(short[: args.limit], key=lambda row: len(row[1]))  # rows of like length decode together
    found = {}
    for spec in (GREEDY, BEAM):
        texts = []
        for i in range(0, len(rows), 50):
            sources = [row[1] for row in rows[i : i + 50]]
            outs = us.generate(model, sources, us.parse(spec), max_new_tokens=2 * LONGEST)
            texts += [out.text.strip() for out in outs]
        found[spec] = overlap(texts, [row[0] for row in rows]).bleu
    return found


TASKS: dict[str, dict[str, Any]] = {
    "lm": {
        "task_recipe": language_model,
        "measure": test_perplexity,
        "updates": 1000,
        "limit": 500,
        "width": 128,
        "wider": 188,
        "longer": 2.4,
        "lr": 1e-2,
    },
    "translation": {
        "task_recipe": translation,
        "measure": test_bleu,
        "updates": 3000,
        "limit": 1000,
        "width": 96,
        "wider": 114,
        "longer": 1.2,
        "lr": 1e-2,
    },
}


def settings(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """All that decides a run's numbers. Of files the names do: the folders are another machine's."""
    asked = recipe(args, name, seed)
    asked["data"] |= {"train": args.train.name}
    told: dict[str, Any] = json.loads(json.dumps({**asked, "test": args.test.name, "limit": args.limit}))
    return told


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def held(path: Path, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The runs of a file, all of them made as `args` say."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        told = {key: (it["name"], it["seed"], dict(flat(it["settings"]))) for key, it in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(
            f"{path} holds no runs of this comparison: choose another file for --json"
        ) from error
    for key, (name, seed, was) in told.items():
        if name not in HEADS:
            raise SystemExit(
                f"{path}: {key!r} is of a head that is not known: choose another file for --json"
            )
        asked = dict(flat(settings(args, name, seed)))
        differ = [
            f"{it} was {was.get(it, 'not there')} and is {asked.get(it, 'not there')}"
            for it in sorted(was | asked)
            if was.get(it, ...) != asked.get(it, ...)
        ]
        if differ:
            raise SystemExit(
                f"{path}: {key!r} was made with other settings: {'; '.join(differ)}. Choose another file for "
                "--json, or the settings of this one"
            )
    return found


def run(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    start = time.process_time()
    asked = recipe(args, name, seed)
    model = train(asked)
    trained = time.process_time() - start
    return {
        "name": name,
        "seed": seed,
        "updates": asked["train"]["updates"],
        "weights": sum(it.numel() for it in model.parameters()),
        "cpu_seconds": trained,
        **args.measure(model.eval(), args),
        "settings": settings(args, name, seed),
    }


def show(found: dict[str, dict[str, Any]], console: Console) -> None:
    runs = list(found.values())
    numbers = [key for key in ("perplexity", GREEDY, BEAM) if key in runs[0]]
    table = Table(title="mean ± standard deviation over seeds")
    for column in ("head", "weights", "updates", "CPU s", "seeds", *numbers):
        table.add_column(column, justify="left" if column == "head" else "right", no_wrap=True)
    for name in (name for name in HEADS if any(run["name"] == name for run in runs)):
        own = [run for run in runs if run["name"] == name]
        shown = []
        for key in numbers:
            values = [run[key] for run in own]
            spread = statistics.stdev(values) if len(values) > 1 else float("nan")
            shown.append(f"{statistics.mean(values):.2f} ± {spread:.2f}")
        seconds = statistics.mean(run["cpu_seconds"] for run in own)
        weights = f"{own[0]['weights'] / 1e6:.2f} M"
        table.add_row(name, weights, str(own[0]["updates"]), f"{seconds:.0f}", str(len(own)), *shown)
    console.print(table)


def arguments(said: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS)
    for name in ("train", "test"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--heads", nargs="+", default=list(HEADS), choices=HEADS, metavar="HEAD")
    parser.add_argument("--limit", type=int, help="lines of the test file")
    parser.add_argument("--lr", type=float, help="peak of the learning rate")
    parser.add_argument("--width", type=int)
    parser.add_argument("--wider", type=int, help="width of the softmax with as many weights as KerBS")
    parser.add_argument(
        "--longer", type=float, help="times as many updates for the softmax that learns longer"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(said)
    for path in (args.train, args.test):
        if not path.exists():
            raise SystemExit(f"{path} is not there: say where the texts are")
    for key, value in TASKS[args.task].items():
        if getattr(args, key, None) is None:
            setattr(args, key, value)
    return args


def main(said: Sequence[str] | None = None) -> int:
    args = arguments(said)
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    if args.json is not None and args.json.exists():
        found = held(args.json, args)
    todo = [(name, seed) for seed in args.seeds for name in args.heads if f"{name} | {seed}" not in found]
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("runs", total=len(todo))
        for name, seed in todo:
            found[f"{name} | {seed}"] = run(args, name, seed)
            progress.advance(bar)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found, Console(width=None if sys.stdout.isatty() else 140))
    return 0


if __name__ == "__main__":
    sys.exit(main())
