"""`unspool evaluate WHAT …`: measures of texts, of models, and of decoders. One file each."""

from __future__ import annotations

import argparse
from types import ModuleType

from unspool.cli.evaluate import model, texts, truth
from unspool.cli.parser import add_subverbs, all_examples

SUBJECTS: dict[str, ModuleType] = {"texts": texts, "model": model, "truth": truth}

SUMMARY = "Measure texts, models and decoders, with intervals."
EXAMPLES = all_examples(SUBJECTS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each kind of thing that is measured."""
    add_subverbs(parser, SUBJECTS, "subject")


def run(args: argparse.Namespace) -> int:
    """Measure what was asked for."""
    status: int = SUBJECTS[args.subject].run(args)
    return status
