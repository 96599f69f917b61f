"""The κ rule compared with the exact basis-aware test: agreement of their verdicts.

    python benchmarks/kappa.py --prompts texts.jsonl --ranks 20 100 576 --json out/kappa.json

For each distribution and τ a few tokens below τ are drawn from the model, as a sampler would, and tested by `BasisTest`
and by `KappaRule`. Tokens that the exact test leaves undecided are not counted. Without --prompts, or for a model without a
tokenizer, the model generates the texts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import unspool as us
from unspool.basis import BasisTest, KappaRule

TAUS = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)


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
    """Count agreements and verdicts for each τ, and the undecided tokens."""
    test, rule, rng = BasisTest(W, rank), KappaRule(rank + 1), np.random.default_rng(0)
    agreements: dict[float, list[bool]] = {tau: [] for tau in TAUS}
    undecided = 0
    for p_V in p_NV:
        exact, approximate = test.step(p_V), rule.step(p_V / p_V.sum())
        for tau in TAUS:
            below_V = np.where(exact.distribution.p < tau, exact.distribution.p, 0.0)
            drawn = np.unique(rng.choice(len(below_V), size=tokens, p=below_V / below_V.sum()))
            for verdict in exact.verdicts(drawn, tau=tau):
                if verdict.decided:
                    same = verdict.accepted == approximate.accepts(verdict.token, tau=tau).accepted
                    agreements[tau].append(same)
                undecided += not verdict.decided
    return {
        "agreement": float(np.mean(np.concatenate(list(agreements.values())))),
        "by_tau": {str(tau): float(np.mean(same)) for tau, same in agreements.items()},
        "verdicts": sum(map(len, agreements.values())),
        "undecided": undecided,
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
    args = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    with threadpool_limits(1):
        model = us.load(args.model)
        W = model.output_matrix.detach()
        p_NV = distributions(model, beginnings(model, args.prompts, args.texts, args.longest))
        for rank in args.ranks or [W.shape[1]]:
            results[str(rank)] = measure(W, rank, p_NV, args.tokens)
            if args.json is not None:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    table = Table(title=f"the κ rule, {Path(args.model).name}: agreement with the exact test, all τ and by τ")
    for column in ("rank", "agreement", "verdicts", "undecided", *map(str, TAUS)):
        table.add_column(column)
    for rank, row in results.items():
        by_tau = (f"{100 * share:.1f} %" for share in row["by_tau"].values())
        table.add_row(
            rank, f"{100 * row['agreement']:.1f} %", str(row["verdicts"]), str(row["undecided"]), *by_tau
        )
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
