"""`unspool diagnose WHAT …`: why text degenerates. One file per diagnosis, with the parts of a verb:
SUMMARY, EXAMPLES, add_options and run."""

from __future__ import annotations

import argparse
from types import ModuleType

from unspool.cli.diagnose import (
    attention,
    beams,
    bottleneck,
    calibration,
    exposure,
    heads,
    loops,
    picture,
    senses,
    thresholds,
    trap,
)
from unspool.cli.parser import add_subverbs, all_examples

DIAGNOSES: dict[str, ModuleType] = {
    "attention": attention,
    "beams": beams,
    "bottleneck": bottleneck,
    "calibration": calibration,
    "exposure": exposure,
    "heads": heads,
    "loops": loops,
    "picture": picture,
    "senses": senses,
    "thresholds": thresholds,
    "trap": trap,
}

SUMMARY = "See why text degenerates: measure a model and its decoders."
EXAMPLES = all_examples(DIAGNOSES)


def add_options(parser: argparse.ArgumentParser) -> None:
    """One sub-command for each diagnosis."""
    add_subverbs(parser, DIAGNOSES, "diagnosis")


def run(args: argparse.Namespace) -> int:
    """Make the diagnosis that was asked for."""
    status: int = DIAGNOSES[args.diagnosis].run(args)
    return status
