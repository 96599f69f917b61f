"""`unspool rate prepare`: a blinded set of several systems' outputs."""

from __future__ import annotations

import argparse
from pathlib import Path

from unspool.cli.output import tell
from unspool.cli.parser import natural, positive

SUMMARY = "Make a blinded set of the outputs of one system or more."
EXAMPLES = """examples:
  unspool rate prepare ours.jsonl theirs.jsonl --out ratings --seed 1
  unspool rate prepare softmax=a.txt kerbs=b.txt --prompts questions.txt --scale preference --out ratings

Outputs are JSON lines with "prompt" and "text", as `unspool generate --json` writes them, or plain lines with
--prompts beside them. Systems are named in key.json only, which raters should not open.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool rate prepare` takes."""
    parser.add_argument("outputs", nargs="+", metavar="[NAME=]PATH", help="the outputs of a system")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the set is written")
    parser.add_argument("--prompts", type=Path, metavar="PATH", help="what was answered, line by line")
    parser.add_argument(
        "--scale",
        choices=("score", "preference"),
        default="score",
        help="score: 0, 1 or 2 for one text; preference: which of two (default: %(default)s)",
    )
    parser.add_argument("--most", type=positive, metavar="N", help="draw N of the prompts (default: all)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the blinding (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Read, blind, write."""
    from unspool.evaluate.rating import prepare
    from unspool.evaluate.text_files import read_systems, shared_prompts

    systems = read_systems(args.outputs, warn=tell)
    prompts = shared_prompts(systems, args.prompts)
    made = prepare(
        args.out,
        {it.name: it.texts for it in systems},
        prompts,
        scale=args.scale,
        seed=args.seed,
        most=args.most,
    )
    asked = len({it.prompt for it in made.key().items.values()})
    print(
        f"{len(made.items)} items of {asked} prompts and {len(systems)} systems in {args.out}; "
        f"next: unspool rate answer {args.out} --rater YOU"
    )
    return 0
