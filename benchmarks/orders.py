"""Addition in different generation orders: left to right, right to left, or all digits at once.

    python benchmarks/orders.py examples   --json out/examples.json --figure docs/img/addition.svg
    python benchmarks/orders.py iterations --json out/iterations.json

`examples`: one encoder–decoder learns to add numbers of up to `--digits` digits, character by character, in either order
(only `tokenizer.right_to_left` differs), for several numbers of training sums and the same number of updates. `iterations`:
masked encoder–decoders learn the same task with each masked objective and are decoded in 1, 2, 4 … passes by mask-predict
and by masked diffusion. An answer to a held-out sum counts if all its digits are right. Each run is saved when it ends;
runs that --json already contains are skipped.
From right to left, a digit depends on two digits and a carry; from left to right, the first digit depends on all digits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import unspool as us
from unspool.data.known_languages.made_data import TaskData
from unspool.plots.canvas import BLUE, ORANGE, canvas

ORDERS = {"left to right": False, "right to left": True}
SHAPE = {"width": 64, "heads": 4, "inner_width": 128, "encoder_layers": 2, "decoder_layers": 2}
SUMS = 500
ITERATIONS = (1, 2, 4, 8)
SEARCHES = {
    "mask-predict, 1 length": lambda passes: us.MaskPredict(passes, lengths=1),
    "mask-predict, 3 lengths": lambda passes: us.MaskPredict(passes, lengths=3),
    "masked diffusion": lambda passes: us.MaskedDiffusion(passes),
}


def recipe(
    kind: str, digits: int, examples: int, seed: int, updates: int, lr: float = 3e-3
) -> dict[str, Any]:
    task = {"kind": "addition", "digits": digits}
    return {
        "seed": seed,
        "data": {"kind": "task", "task": task, "train": examples, "valid": 100, "seed": seed},
        "tokenizer": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 1024},
        "model": {"kind": kind, **SHAPE},
        "schedule": {"kind": "cosine", "warmup": 50},
        "train": {
            **{"updates": updates, "lr": lr, "threads": 1, "final": "last"},
            **{"validate_every": updates, "checkpoint_every": updates},
        },
    }


def right(model: Any, search: Any, digits: int, sums: int = SUMS) -> float:
    """The share of held-out sums whose digits are all right."""
    task = TaskData(task={"kind": "addition", "digits": digits}, train=1, valid=sums, seed=99)
    sources, targets = zip(*task.valid_rows(None), strict=True)
    outs = us.generate(model, list(sources), search, max_new_tokens=digits + 2)
    return sum(out.text == target for out, target in zip(outs, targets, strict=True)) / sums


def by_order(order: str, digits: int, examples: int, seed: int, updates: int, sums: int = SUMS) -> float:
    """Right greedy answers of a model that learnt from so many sums in this order."""
    settings = recipe("transformer_seq2seq", digits, examples, seed, updates)
    settings["tokenizer"]["right_to_left"] = ORDERS[order]
    return right(us.train(settings), us.Greedy(), digits, sums)


def by_iterations(
    objective: str, digits: int, examples: int, seed: int, updates: int, lr: float, sums: int = SUMS
) -> dict[str, list[float]]:
    """Search → right answers after 1, 2, 4 … passes, of a model that learnt by this objective."""
    settings = recipe("masked_seq2seq", digits, examples, seed, updates, lr)
    model = us.train({**settings, "objective": {"kind": objective}})
    return {
        name: [right(model, search(passes), digits, sums) for passes in ITERATIONS]
        for name, search in SEARCHES.items()
    }


class Kept:
    """What was measured, by name, in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.found = path, {}
        if path is not None and path.exists():
            self.found = json.loads(path.read_text(encoding="utf-8"))

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        if name not in self.found:
            began = time.process_time()
            self.found[name] = measure()
            print(f"{name}: {self.found[name]} ({time.process_time() - began:.0f} CPU s)", flush=True)
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.write_text(json.dumps(self.found, indent=1), encoding="utf-8")
        return self.found[name]


def study_examples(args: argparse.Namespace) -> None:
    kept = Kept(args.json)
    found: dict[str, list[list[float]]] = {order: [] for order in ORDERS}
    for order, rows in found.items():
        for count in args.examples:
            rows.append(
                [
                    kept(
                        f"{order}, {count} sums, seed {seed}",
                        lambda order=order, count=count, seed=seed: by_order(
                            order, args.digits, count, seed, args.updates
                        ),
                    )
                    for seed in args.seeds
                ]
            )
    print(f"\n| right sums, % | {' | '.join(f'{it:,}' for it in args.examples)} |")
    print("|---" * (len(args.examples) + 1) + "|")
    for order, rows in found.items():
        print(f"| {order} | {' | '.join(_spread(it) for it in rows)} |")
    if args.figure is not None:
        draw(args.examples, found, args.figure, args.digits)


def study_iterations(args: argparse.Namespace) -> None:
    kept, count = Kept(args.json), args.examples[-1]
    lines = []
    for objective in ("masked", "masked_diffusion"):
        runs = [
            kept(
                f"{objective}, {count} sums, seed {seed}",
                lambda objective=objective, seed=seed: by_iterations(
                    objective, args.digits, count, seed, args.updates, args.lr
                ),
            )
            for seed in args.seeds
        ]
        for name in SEARCHES:
            said = [_spread([run[name][at] for run in runs]) for at in range(len(ITERATIONS))]
            lines.append(f"| {objective} | {name} | {' | '.join(said)} |")
    print(f"\n| objective | search | {' | '.join(map(str, ITERATIONS))} |")
    print("|---" * (len(ITERATIONS) + 2) + "|", *lines, sep="\n")


def _spread(shares: Sequence[float]) -> str:
    """Mean and standard deviation, in per cent."""
    spread = f" ± {100 * statistics.stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{100 * statistics.mean(shares):.1f}{spread}"


def draw(examples: Sequence[int], found: dict[str, list[list[float]]], path: Path, digits: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with canvas(path, 6.4, 3.4) as figure:
        axes = figure.subplots()
        for (order, rows), colour in zip(found.items(), (ORANGE, BLUE), strict=True):
            means = [100 * statistics.mean(it) for it in rows]
            axes.plot(examples, means, "o-", color=colour, label=order, markersize=4)
            for count, shares in zip(examples, rows, strict=True):
                axes.plot([count] * len(shares), [100 * it for it in shares], ".", color=colour, alpha=0.4)
        axes.set(
            xlabel=f"sums learnt from (up to {digits} digits each)",
            ylabel="held-out sums without a mistake, %",
            xscale="log",
            ylim=(-3, 103),
        )
        axes.set_xticks(examples, [f"{it:,}" for it in examples])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


STUDIES = {"examples": study_examples, "iterations": study_iterations}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--digits", type=int, default=3)
    parser.add_argument("--examples", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--lr", type=float, default=3e-3, help="of the models that fill places")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    STUDIES[args.study](args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
