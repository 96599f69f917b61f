"""`unspool rate import`: answers from a CSV sheet."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "Record the answers of a CSV sheet: all of them, or none where one is wrong."
EXAMPLES = """examples:
  unspool rate import ratings anna.csv
  unspool rate import ratings sheet.csv --rater anna

The sheet has the columns rater, item and choice, separated by commas, semicolons or tabs.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool rate import` takes."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the set")
    parser.add_argument("sheet", type=Path, metavar="PATH", help="the file to read")
    parser.add_argument(
        "--rater", metavar="NAME", help="whose answers they are, where the sheet does not say"
    )


def run(args: argparse.Namespace) -> int:
    """Read the sheet."""
    from unspool.evaluate.rating import RatingSet, read_sheet

    new = read_sheet(RatingSet.load(args.folder), args.sheet, rater=args.rater)
    print(f"{new} new answers")
    return 0
