"""`unspool evaluate model`: perplexity, bits per byte and calibration of a model on a text."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from math import log

from unspool.cli.models import load_model
from unspool.cli.output import Result
from unspool.cli.parser import add_model_argument, command, number
from unspool.cli.texts import add_reading_options, add_text_options, given_texts

EXAMPLES = """examples:
  unspool evaluate model smollm2 --text book.txt --document file
  unspool evaluate model runs/dates --text pairs.tsv --json --figure reliability.svg

A run folder reads the columns and fields of a file as in training. Bits per byte compare models
with different tokenizers; perplexities do not. ECE (expected calibration error) is the distance
between confidence and accuracy of the most probable token; the figure is the reliability diagram.
"""


@command(
    EXAMPLES,
    add_model_argument,
    partial(add_text_options, required=True),
    add_reading_options,
    number("--bins", 15, "bins of confidence"),
    figure=True,
)
def evaluate_model(args: argparse.Namespace) -> Result:
    """Measure a model on a text: perplexity and calibration."""
    from unspool.evaluate.confidence_calibration import token_calibration
    from unspool.evaluate.teacher_forcing import perplexity
    from unspool.plots.figures import draw_reliability

    model = load_model(args)
    sources, texts = given_texts(model, args)
    try:
        result = perplexity(model, texts, sources, context=args.context)
        calibration = token_calibration(model, texts, sources, context=args.context, bins=args.bins)
    except ValueError as error:
        raise ValueError(f"{args.text}: {error}") from error
    bits_per_byte = result.nats / log(2) / sum(len(text.encode()) for text in texts)
    record = {
        "texts": len(texts),
        "tokens": result.tokens,
        "perplexity": result.value,
        "bits_per_byte": bits_per_byte,
        "by_text": result.by_text,
        "calibration": asdict(calibration),
    }
    null = calibration.null
    lines = [
        f"perplexity     {result.value:.3f}   of {result.tokens:,} tokens in {len(texts):,} texts",
        f"bits per byte  {bits_per_byte:.4f}",
        f"accuracy       {calibration.accuracy:.4f}   of the most probable token",
        f"confidence     {calibration.confidence:.4f}   on average",
        f"ECE            {calibration.ece:.4f}   in {args.bins} bins; largest gap {calibration.worst:.3f}",
        f"  by chance    {null.low:.4f} to {null.high:.4f} for a perfectly calibrated model",
    ]
    return Result([record], lines, partial(draw_reliability, calibration))
