"""Share of a model's texts that end in a loop: greedy decoding and each remedy.

    python benchmarks/loop_rate.py --prompts prompts.jsonl --limit 50 --json out/loop_rate.json

Prompts are the first tokens of real texts: a file with one text per line, or JSONL with a "text" field. A text loops if
its last tokens are exactly periodic (`us.find_loop`: a phrase of two tokens or more, three times). Each decoder's row is
saved when it is done; rows that --json already contains are skipped.
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
from unspool.evaluate.diversity import distinct_n, seq_rep_n

DECODERS = [
    "Greedy()",
    "Beam(4)",
    "Greedy(RepetitionPenalty(1.2))",
    "Greedy(FrequencyPenalty(0.5))",
    "Greedy(NoRepeatNgram(4))",
    "Greedy(DRY())",
    "ContrastiveSearch(4, 0.6)",
    "Sample(Temperature(0.5))",
    "Sample(TopK(50))",
    "Sample(TopP(0.9))",
    "Sample(MinP(0.05))",
    "Sample(Eta(0.0009))",
    "Sample(Typical(0.95))",
    "Sample(Mirostat())",
    "Sample()",
]


def read(path: Path, limit: int) -> list[str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = [json.loads(line)["text"] if path.suffix == ".jsonl" else line for line in lines[:limit]]
    if len(texts) < limit:
        raise SystemExit(f"{path} has {len(texts)} texts, and --limit asks for {limit}")
    return texts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--prompts", type=Path, required=True, help="one text a line, or JSONL with a text field"
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--decoders", nargs="+", default=DECODERS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.prompts.exists():
        raise SystemExit(f"{args.prompts} is not there: give a file of texts, one a line")

    model = us.load(args.model)
    prompts = [model.tokenizer.encode(text)[: args.prompt_tokens] for text in read(args.prompts, args.limit)]
    runs: list[tuple[str, us.models.TransformerLM, us.Greedy]] = [
        (spec, model, us.parse(spec)) for spec in args.decoders
    ]
    runs.append(("EarlyExit(model): Greedy()", us.EarlyExit(model), us.Greedy()))
    found = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("decoding", total=len(runs) * len(prompts))
        for name, chosen, search in runs:
            if name in found:
                progress.advance(bar, len(prompts))
                continue
            start, texts = time.perf_counter(), []
            for first in range(0, len(prompts), args.batch):
                batch = prompts[first : first + args.batch]
                outs = us.generate(chosen, batch, search, max_new_tokens=args.new_tokens, seed=1)
                texts += [out.tokens[:-1] if out.finish_reason == "eos" else out.tokens for out in outs]
                progress.advance(bar, len(batch))
            loops = [us.find_loop(tokens) for tokens in texts]
            found[name] = {
                "loop_rate": sum(loop is not None for loop in loops) / len(texts),
                "periods": sorted(loop.period for loop in loops if loop is not None),
                "seq_rep_4": seq_rep_n(texts, 4),
                "distinct_2": distinct_n(texts, 2),
                "mean_length": sum(map(len, texts)) / len(texts),
                "seconds": time.perf_counter() - start,
            }
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps(found, indent=1))
    table = Table(title=f"{args.model}, {len(prompts)} prompts × {args.new_tokens} tokens")
    for column in ("decoder", "loops", "seq-rep-4", "distinct-2", "length", "seconds"):
        table.add_column(column, no_wrap=True)
    for name, row in found.items():
        table.add_row(
            name,
            f"{row['loop_rate']:.0%}",
            f"{row['seq_rep_4']:.3f}",
            f"{row['distinct_2']:.3f}",
            f"{row['mean_length']:.0f}",
            f"{row['seconds']:.0f}",
        )
    Console(width=110).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
