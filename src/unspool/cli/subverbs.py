"""Verbs that have verbs of their own: `unspool diagnose WHAT …`, `unspool rate WHAT …`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType

from unspool.cli.parser import Parser


def add_subverbs(parser: argparse.ArgumentParser, verbs: Mapping[str, ModuleType], dest: str) -> None:
    """One sub-command for each; a module has the parts of a verb: SUMMARY, EXAMPLES, add_options and run."""
    subs = parser.add_subparsers(dest=dest, metavar="WHAT", required=True, parser_class=Parser)
    for name, verb in verbs.items():
        sub = subs.add_parser(name, help=verb.SUMMARY, description=verb.SUMMARY, epilog=verb.EXAMPLES)
        verb.add_options(sub)
        # SUPPRESS: the flag after the sub-command must not undo the one before it.
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )


def all_examples(verbs: Mapping[str, ModuleType]) -> str:
    """The examples of each, without what is explained after them."""
    lines = (line for verb in verbs.values() for line in verb.EXAMPLES.splitlines())
    return "examples:\n" + "\n".join(line for line in lines if line.startswith("  unspool "))
