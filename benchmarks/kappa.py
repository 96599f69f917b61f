"""The κ rule compared with the exact basis-aware test: thresholds, and agreement.

    python benchmarks/kappa.py --prompts texts.jsonl --ranks 100 576 --json out/kappa.json --figure out/kappa.svg

g(c) is fitted on distributions from the first half of the texts and evaluated on the second half
(`BasisTest.calibrate_kappa`), for the rule that needs no data from W and for the one that uses the row lengths of W; then
the halves are exchanged. The formula without fitting (`KappaRule.typical`) is evaluated on the same verdicts. For each
distribution and τ a few tokens below τ are drawn from the model, as a sampler would. Without --prompts, or for a model
without a tokenizer, the model generates the texts. Each rank is saved when it is done; ranks that --json already contains
are skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import unspool as us
from unspool.basis import BasisTest
from unspool.basis.calibration import ExactVerdicts, collect_verdicts
from unspool.plots.canvas import BLUE, GREEN, ORANGE, RED, SOFT, canvas

TAUS = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
FORMS = {"ℓ = 1": False, "row lengths": True}
AGREEMENT = {
    "held_out": "agreement",
    "fitted": "fitted",
    "held_out_exchanged": "halves exchanged",
    "cross_validated": "cross-validated",
    "formula": "formula",
}


def read(path: Path, count: int) -> list[str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(lines) < count:
        raise SystemExit(f"{path} has {len(lines)} texts, and {count} are asked for")
    return [json.loads(line)["text"] if path.suffix == ".jsonl" else line for line in lines[:count]]


def beginnings(model: Any, path: Path | None, count: int, longest: int) -> list[list[int]]:
    """The first tokens of as many texts, of random lengths."""
    rng = np.random.default_rng(0)
    if path is not None and model.tokenizer is not None:
        ids = [list(model.tokenizer.encode(text))[:longest] for text in read(path, count)]
    else:
        outputs = us.generate(model, [[1]] * count, us.Sample(), max_new_tokens=longest - 1, seed=0)
        ids = [[1, *out.tokens] for out in outputs]
    return [row[: int(rng.integers(min(4, len(row)), len(row) + 1))] for row in ids]


def distributions(model: Any, rows: list[list[int]]) -> np.ndarray:
    with torch.inference_mode():
        parts = [model.start(rows[i : i + 10])[0].logp_NV.double().exp() for i in range(0, len(rows), 10)]
    return torch.cat(parts).numpy()


def measure(W: Any, rank: int, p_NV: np.ndarray, tokens: int) -> dict[str, Any]:
    start, test = time.process_time(), BasisTest(W, rank)
    verdicts = collect_verdicts(test, p_NV, TAUS, tokens=tokens)
    forms = {name: agreement(verdicts, lengths) for name, lengths in FORMS.items()}
    return {
        "m": test.m,
        "c": [tau / (1 - tau) for tau in TAUS],
        "forms": forms,
        "seconds": time.process_time() - start,
    }


def agreement(verdicts: ExactVerdicts, lengths: bool) -> dict[str, Any]:
    found = verdicts.calibrate(lengths=lengths)
    last = len(verdicts.p_NV) - 1
    exchanged = replace(verdicts, p_NV=verdicts.p_NV[::-1], distribution_Q=last - verdicts.distribution_Q)
    return {
        "g": [found.rule.threshold(tau) for tau in TAUS],
        "knots": dict(zip(found.rule.slopes, found.rule.thresholds, strict=True)),
        "fitted": found.fitted,
        "held_out": found.held_out,
        "held_out_exchanged": exchanged.calibrate(lengths=lengths).held_out,
        "held_out_by_tau": {str(tau): share for tau, share in found.held_out_by_tau.items()},
        "verdicts": list(found.counts),
        "undecided": found.undecided,
        "cross_validated": found.comparison.fitted,
        "formula": found.comparison.formula,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, help="one text a line, or JSONL with a text field")
    parser.add_argument("--ranks", type=int, nargs="+", help="default: the model's width")
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--longest", type=int, default=64, help="tokens of a beginning")
    parser.add_argument("--tokens", type=int, default=6, help="drawn per distribution and tau")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 150)
    results: dict[str, Any] = {}
    if args.json is not None and args.json.exists():
        results = json.loads(args.json.read_text(encoding="utf-8"))
    with threadpool_limits(1):
        model = us.load(args.model)
        W = model.output_matrix.detach()
        p_NV = distributions(model, beginnings(model, args.prompts, args.texts, args.longest))
        for rank in args.ranks or [W.shape[1]]:
            if str(rank) not in results:
                results[str(rank)] = measure(W, rank, p_NV, args.tokens)
                if args.json is not None:
                    args.json.parent.mkdir(parents=True, exist_ok=True)
                    args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    show(results, console, f"{Path(args.model).name}, {W.shape[0]} × {W.shape[1]}")
    if args.figure is not None:
        draw(results, args.figure, Path(args.model).name)
    return 0


def show(results: dict[str, Any], console: Console, what: str) -> None:
    table = Table(title=f"the κ rule, {what}: agreement with the exact test, held out; by τ: agreement, g")
    for column in ("rank", "form", "verdicts", *AGREEMENT.values(), *map(str, TAUS)):
        table.add_column(column)
    for rank, result in results.items():
        for name, form in result["forms"].items():
            by_tau = form["held_out_by_tau"]
            table.add_row(
                rank,
                name,
                str(form["verdicts"][1]),
                *(f"{100 * form[key]:.1f} %" if key in form else "–" for key in AGREEMENT),
                *(
                    f"{100 * by_tau[tau]:.1f} %, {g:.3g}" if tau in by_tau else "–"
                    for tau, g in zip(map(str, TAUS), form["g"], strict=True)
                ),
            )
    console.print(table)


def draw(results: dict[str, Any], path: Path, what: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = (ORANGE, BLUE, GREEN, RED, SOFT)
    with canvas(path, 8.4, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        for n, (rank, result) in enumerate(sorted(results.items(), key=lambda item: int(item[0]))):
            for (name, form), style in zip(result["forms"].items(), ("s--", "o-"), strict=True):
                look = {"color": colours[n % len(colours)], "markersize": 3.5, "linewidth": 1.2}
                points = {
                    c: 100 * form["held_out_by_tau"][str(tau)]
                    for c, tau in zip(result["c"], TAUS, strict=True)
                    if str(tau) in form["held_out_by_tau"]
                }
                share = f"rank {rank}, {name}: {100 * form['held_out']:.1f} %"
                left.plot(points.keys(), points.values(), style, label=share, **look)
                right.plot(result["c"], form["g"], style, **look)
        left.set(
            xscale="log", xlabel="c = τ/(1 − τ)", ylabel="agreement, %", title=f"{what}: held-out agreement"
        )
        right.set(
            xscale="log",
            yscale="log",
            xlabel="c = τ/(1 − τ)",
            ylabel="g(c)",
            title="accept if κ·p̂·ℓ ≥ g(c)",
        )
        for axes in (left, right):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right center", frameon=False, fontsize=8)


if __name__ == "__main__":
    sys.exit(main())
