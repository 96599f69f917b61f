"""`unspool lab list`: the claims, in order, with what is known of them."""

from __future__ import annotations

import argparse

from unspool.cli.lab.choice import add_result_options, known, say
from unspool.cli.output import json_line

SUMMARY = "List the claims, and the verdicts that are known."
EXAMPLES = """examples:
  unspool lab list
  unspool lab list --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool lab list` takes."""
    add_result_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a claim")


def run(args: argparse.Namespace) -> int:
    """One line a claim."""
    from unspool.lab.claims import CLAIMS

    for it in known(args, CLAIMS, say):
        claim = it.claim
        if args.json:
            record = {
                **{"name": claim.name, "statement": claim.statement, "source": str(claim.source)},
                **{"measured": claim.measured, "criterion": [part.words for part in claim.criterion]},
                **{"verdict": it.verdict, "seeds": [result.seed for result in it.results]},
            }
            print(json_line(record))
        else:
            print(f"{claim.name:24} {it.verdict:15} {claim.statement}")
    return 0
