"""Cost of basis-aware sampling per generated token, relative to top-p: `python benchmarks/basis_tokens.py`.

Both methods decode the same prompts, one row at a time, in alternation. Times are processor time of one thread. The
first token of a text is excluded, because it includes the prompt; the test is built once per model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import unspool as us
from basis import read

PEER = "Sample(TopP(0.9))"
DECODERS = [
    "Sample(BasisAware(0.1, rank=20))",
    "Sample(BasisAware(0.5, rank=20))",
    "Sample(BasisAware.eta(0.02, rank=20))",
    "Sample(BasisAware.nucleus(0.9, rank=20))",
    "Sample(BasisAware(0.1, rank=100))",
]


def milliseconds_a_token(
    model: Any, prompt: str, decoder: Any, tokens: int, seed: int, batch: int
) -> tuple[float, dict]:
    """From the second token on; with several rows, of a token of one row."""
    times = []
    for length in (1, tokens):
        start = time.process_time()
        outs = us.generate(model, [prompt] * batch, decoder, max_new_tokens=length, seed=seed)
        times.append((time.process_time() - start, sum(len(out.tokens) for out in outs)))
    (first, one), (whole, count) = times
    tests = sum(out.stats.get("tests", 0) for out in outs) / batch
    return 1e3 * (whole - first) / max(count - one, 1), {**outs[0].stats, "tests": tests}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, help="one text a line, or JSONL with a text field")
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--batch", type=int, default=1, help="samples of each prompt, decoded side by side")
    parser.add_argument("--decoders", nargs="+", default=DECODERS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, prompts = us.load(args.model), read(args.prompts)[: args.texts]
    decoders = {spec: us.parse(spec) for spec in (PEER, *args.decoders)}
    found: dict[str, dict[str, list[float]]] = {spec: {"ms": [], "tests": []} for spec in decoders}
    for decoder in decoders.values():
        us.generate(model, prompts[0], decoder, max_new_tokens=4, seed=0)
    for seed, prompt in enumerate(track(prompts, console=Console(stderr=True))):
        for spec, decoder in decoders.items():
            ms, stats = milliseconds_a_token(model, prompt, decoder, args.tokens, seed, args.batch)
            found[spec]["ms"].append(ms)
            found[spec]["tests"].append(stats.get("tests", 0) / args.tokens)
    table = Table(title=f"{len(prompts)} texts of {args.tokens} tokens, batch {args.batch}")
    for column in ("decoder", "ms a token: median", "mean", "of top-p: median", "mean", "tests a token"):
        table.add_column(column, justify="left" if column == "decoder" else "right", no_wrap=True)
    peer = found[PEER]["ms"]
    for spec, line in found.items():
        ratios = [own / other for own, other in zip(line["ms"], peer, strict=True)]
        table.add_row(
            *(spec, f"{statistics.median(line['ms']):.1f}", f"{statistics.mean(line['ms']):.1f}"),
            *(
                f"{statistics.median(ratios):.2f}",
                f"{statistics.mean(line['ms']) / statistics.mean(peer):.2f}",
            ),
            f"{statistics.mean(line['tests']):.2f}",
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
