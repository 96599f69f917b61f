"""`unspool rate report`: what raters said, by system."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import natural, positive

if TYPE_CHECKING:
    from unspool.evaluate.rating import RatingReport

SUMMARY = "Sum up what raters said: means or strengths with intervals, and how far they agree."
EXAMPLES = """examples:
  unspool rate report ratings
  unspool rate report ratings --json --figure ratings.svg

The key is opened: systems are named. Intervals are bootstrap intervals (95 %) over items. α is
Krippendorff's: 1 full agreement, 0 what chance gives; above 0.8 is called reliable, from 0.667 on tentative.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool rate report` takes."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the set")
    parser.add_argument(
        "--samples", type=positive, default=1000, metavar="N", help="draws of the bootstrap (default: 1000)"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Read, sum up, tell."""
    from unspool.evaluate.rating import RatingSet, report

    ratings = RatingSet.load(args.folder)
    if args.figure:
        from unspool.plots.canvas import figure_path

        figure_path(args.figure)
    with reserved(args.figure):
        found = report(ratings, samples=args.samples, seed=args.seed)
        if args.figure:
            from unspool.plots.figures import draw_intervals

            draw_intervals({_measure(found): {it.system: it.value for it in found.systems}}, args.figure)
    if args.json:
        pairs = [{"first": a, "second": b, **asdict(test)} for (a, b), test in found.pairs.items()]
        print(json_line({**asdict(found), "pairs": pairs}))
    else:
        _print(found)
    if args.figure:
        tell(f"wrote {args.figure}")
    return 0


def _measure(found: RatingReport) -> str:
    return "mean score" if found.scale == "score" else "strength"


def _print(found: RatingReport) -> None:
    raters = ", ".join(f"{name} ({count})" for name, count in found.raters.items())
    print(f"{found.answers} answers to {found.items} items by {raters}\n")
    counts = list(found.systems[0].counts)
    print_rows(
        ["system", "answers", *counts, _measure(found), "95 % interval"],
        [
            [
                it.system,
                str(it.answers),
                *(str(it.counts[name]) for name in counts),
                f"{it.value.value:.3f}",
                f"{it.value.low:.3f} … {it.value.high:.3f}",
            ]
            for it in found.systems
        ],
    )
    if found.alphas:
        said = (
            f"{level} {it.value:.3f} ({it.low:.3f} … {it.high:.3f})" for level, it in found.alphas.items()
        )
        print("agreement, Krippendorff's α: " + ", ".join(said))
    else:
        print("agreement cannot be told: no item has two ratings that could differ")
    for (a, b), test in found.pairs.items():
        print(
            f"{a} − {b}: {test.difference:+.3f}, p = {test.p:.3f} "
            "(approximate randomisation over prompts where both were rated)"
        )
