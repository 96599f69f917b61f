"""`unspool rate WHAT …`: people's judgement of texts. One file per step, with the parts of a verb."""

from __future__ import annotations

import argparse
from types import ModuleType

from unspool.cli.parser import add_subverbs, all_examples
from unspool.cli.rate import answer, fill, prepare, report, sheet

STEPS: dict[str, ModuleType] = {
    "prepare": prepare,
    "answer": answer,
    "report": report,
    "export": sheet,
    "import": fill,
}

SUMMARY = "Have people rate texts: prepare a blinded set, answer it, see what they said."
EXAMPLES = all_examples(STEPS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each step."""
    add_subverbs(parser, STEPS, "step")


def run(args: argparse.Namespace) -> int:
    """Take the step that was asked for."""
    status: int = STEPS[args.step].run(args)
    return status
