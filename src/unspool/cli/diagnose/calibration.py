"""`unspool diagnose calibration`: is a model as often right as it is sure?"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.diagnose.texts import add_gold_options, gold_texts
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "See whether a model is as often right as it is sure: ECE and the reliability diagram."
EXAMPLES = """examples:
  unspool diagnose calibration smollm2 --text book.txt --document file
  unspool diagnose calibration runs/dates --bins 10 -o reliability.svg --json

Of the most probable token at every place: how probable it was said to be, and how often it stood there.
Texts are read in pieces of --length tokens, of which the first --prompt are only read.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose calibration` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_gold_options(parser, texts=128)
    parser.add_argument("--length", type=positive, default=256, metavar="N", help="of a piece (default: 256)")
    parser.add_argument("--bins", type=positive, default=15, metavar="N", help="of confidence (default: 15)")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Read, count, tell."""
    from unspool.evaluate.confidence_calibration import pair_calibration
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_reliability

    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        gold = gold_texts(model, args, max_tokens=args.prompt + args.length)
        found = pair_calibration(model, gold.pairs, bins=args.bins)
        if args.output:
            draw_reliability(found, args.output)
    if args.json:
        print(json_line({"of": gold.source, "verdict": found.verdict, **asdict(found)}))
    else:
        print(f"the most probable token, on {gold.source}, {found.count:,} places")
        print_rows(
            ["confidence", "places", "mean", "right"],
            [
                [
                    f"{it.low:.2f} … {it.high:.2f}",
                    f"{it.count:,}",
                    f"{it.confidence:.3f}",
                    f"{it.accuracy:.3f}",
                ]
                for it in found.bins
                if it.count
            ],
        )
        print(found.verdict)
    if args.output:
        tell(f"wrote {args.output}")
    return 0
