"""`unspool rate export`: answers as CSV, or a sheet for one rater to fill in."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "Write all answers, or one rater's sheet, as CSV."
EXAMPLES = """examples:
  unspool rate export ratings answers.csv
  unspool rate export ratings anna.csv --rater anna
  unspool rate export ratings unblinded.csv --systems
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool rate export` takes."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the set")
    parser.add_argument("sheet", type=Path, metavar="PATH", help="the file to write")
    parser.add_argument("--rater", metavar="NAME", help="every item for this rater to fill in")
    parser.add_argument("--systems", action="store_true", help="name the systems: nobody is blind any more")


def run(args: argparse.Namespace) -> int:
    """Write the sheet."""
    from unspool.cli.output import check_output
    from unspool.evaluate.rating import RatingSet, write_sheet

    check_output(args.sheet)
    rows = write_sheet(RatingSet.load(args.folder), args.sheet, rater=args.rater, systems=args.systems)
    print(f"{rows} rows in {args.sheet}")
    return 0
