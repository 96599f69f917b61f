"""`unspool lab list | run | report`: the claims of the documents, measured again. One file each, with the
parts of a verb: SUMMARY, EXAMPLES, add_options and run."""

from __future__ import annotations

import argparse
from types import ModuleType

from unspool.cli.lab import claims_list, claims_report, claims_run
from unspool.cli.parser import Parser

ASKS: dict[str, ModuleType] = {"list": claims_list, "run": claims_run, "report": claims_report}

SUMMARY = "Measure the claims of the documents again: small experiments, verdicts, one page."
EXAMPLES = """examples:
  unspool lab list
  unspool lab run greedy_trigram
  unspool lab run --all --quick
  unspool lab report -o lab.html
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each."""
    subs = parser.add_subparsers(dest="ask", metavar="WHAT", required=True, parser_class=Parser)
    for name, ask in ASKS.items():
        sub = subs.add_parser(name, help=ask.SUMMARY, description=ask.SUMMARY, epilog=ask.EXAMPLES)
        ask.add_options(sub)
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    status: int = ASKS[args.ask].run(args)
    return status
