"""BLEU and chrF of a trained translation model on held-out pairs: greedy decoding and beam search.

python benchmarks/translation.py RUN --pairs test.tsv --source 2 --target 1 --json out/translation.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import unspool as us
from unspool.evaluate.reference_overlap import overlap

DECODERS = ["Greedy()", "Beam(5)", "Beam(5, length_penalty=GNMT(0.6))"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--pairs", type=Path, required=True, help="tab-separated pairs that were held out")
    parser.add_argument("--source", type=int, default=1, help="column of the source, from 1")
    parser.add_argument("--target", type=int, default=2)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--new-tokens", type=int, default=80)
    parser.add_argument("--decoders", nargs="+", default=DECODERS)
    parser.add_argument("--show", type=int, default=5, help="translations printed beside their references")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.pairs.exists():
        raise SystemExit(f"{args.pairs} is not there: give a file with a pair of sentences a line")
    rows = [line.split("\t") for line in args.pairs.read_text(encoding="utf-8").splitlines()][: args.limit]
    sources, references = ([row[column - 1] for row in rows] for column in (args.source, args.target))
    model, found, shown = us.load(args.run), {}, {}
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # rows of like length decode together
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("translating", total=len(args.decoders) * len(sources))
        for spec in args.decoders:
            start, texts = time.perf_counter(), [""] * len(sources)
            for first in range(0, len(order), args.batch):
                chosen = order[first : first + args.batch]
                outs = us.generate(
                    model, [sources[i] for i in chosen], us.parse(spec), max_new_tokens=args.new_tokens
                )
                for i, out in zip(chosen, outs, strict=True):
                    texts[i] = out.text.strip()
                progress.advance(bar, len(chosen))
            score = overlap(texts, references)
            found[spec] = {
                "bleu": score.bleu,
                "chrf": score.chrf,
                "ter": score.ter,
                "sentences": len(texts),
                "seconds": time.perf_counter() - start,
                "signatures": dict(score.signatures),
            }
            shown[spec] = texts[: args.show]
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1))
    table = Table(title=f"{len(sources)} held-out pairs")
    for column in ("decoder", "BLEU", "chrF", "TER", "seconds"):
        table.add_column(column, no_wrap=True)
    for spec, row in found.items():
        table.add_row(spec, *(f"{row[key]:.1f}" for key in ("bleu", "chrf", "ter", "seconds")))
    console = Console(width=110)
    console.print(table)
    for i in range(min(args.show, len(sources))):
        console.print(f"\n{sources[i]}\n  reference: {references[i]}", highlight=False, markup=False)
        for spec, texts in shown.items():
            console.print(f"  {spec}: {texts[i]}", highlight=False, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
