"""`unspool diagnose trap`: whether the most probable text is one that nobody would write."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.diagnose.texts import add_gold_options, gold_texts
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "See the likelihood trap: repetition, people's words and nonsense, by how probable they are."
EXAMPLES = """examples:
  unspool diagnose trap smollm2 --text articles.jsonl
  unspool diagnose trap runs/dates -o trap.svg --json

Of every text, after its first --prompt tokens (or its source), three versions are scored: the next tokens
as they are, the first --phrase of them again and again, and all of them shuffled; beside them stands what
the model says itself.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose trap` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_gold_options(parser, texts=64)
    parser.add_argument(
        "--length", type=positive, default=64, metavar="N", help="tokens scored (default: 64)"
    )
    parser.add_argument(
        "--phrase", type=positive, default=8, metavar="N", help="tokens repeated (default: 8)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Score, compare, tell."""
    from unspool.diagnose.likelihood_traps import likelihood_trap
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_trap

    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        gold = gold_texts(model, args, max_tokens=args.prompt + args.length)
        found = likelihood_trap(model, gold.pairs, length=args.length, phrase=args.phrase, seed=args.seed)
        if args.output:
            draw_trap(found, args.output)
    if args.json:
        kinds = {kind: asdict(it) for kind, it in found.kinds.items()}
        print(
            json_line({"of": gold.source, "verdict": found.verdict, "trapped": found.trapped, "kinds": kinds})
        )
    else:
        print(f"log p a token, on {gold.source}")
        print_rows(
            ["", "texts", "log p", "95 % interval"],
            [
                [kind, str(len(found.by_text[kind])), f"{it.value:.3f}", f"{it.low:.3f} … {it.high:.3f}"]
                for kind, it in found.kinds.items()
            ],
        )
        print(found.verdict)
    if args.output:
        tell(f"wrote {args.output}")
    return 0
