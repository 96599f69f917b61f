"""`unspool diagnose WHAT …`: why text degenerates. One file per diagnosis, with the parts of a verb:
SUMMARY, EXAMPLES, add_options and run."""

from __future__ import annotations

import argparse
from types import ModuleType

from unspool.cli.diagnose import bottleneck, exposure, heads, picture, senses, thresholds
from unspool.cli.parser import Parser

DIAGNOSES: dict[str, ModuleType] = {
    "bottleneck": bottleneck,
    "exposure": exposure,
    "heads": heads,
    "picture": picture,
    "senses": senses,
    "thresholds": thresholds,
}

SUMMARY = "See why text degenerates: measure a model and its decoders."
EXAMPLES = "examples:\n" + "\n".join(
    line
    for diagnosis in DIAGNOSES.values()
    for line in diagnosis.EXAMPLES.splitlines()
    if line.startswith("  unspool ")
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each diagnosis."""
    subs = parser.add_subparsers(dest="diagnosis", metavar="WHAT", required=True, parser_class=Parser)
    for name, diagnosis in DIAGNOSES.items():
        sub = subs.add_parser(
            name, help=diagnosis.SUMMARY, description=diagnosis.SUMMARY, epilog=diagnosis.EXAMPLES
        )
        diagnosis.add_options(sub)
        # SUPPRESS: the flag after the diagnosis must not undo the one before it.
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )


def run(args: argparse.Namespace) -> int:
    """Make the diagnosis that was asked for."""
    status: int = DIAGNOSES[args.diagnosis].run(args)
    return status
