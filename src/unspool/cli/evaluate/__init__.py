"""`unspool evaluate`: measure texts, models and decoders."""

from __future__ import annotations

from unspool.cli.evaluate import model, texts, truth
from unspool.cli.parser import CommandGroup

COMMAND = CommandGroup(
    "Measure texts, models and decoders, with confidence intervals.",
    {"texts": texts.evaluate_texts, "model": model.evaluate_model, "truth": truth.evaluate_truth},
)
