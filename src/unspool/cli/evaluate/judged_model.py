"""`unspool evaluate model`: how well a model predicts a text, and whether its confidence is deserved."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from math import log
from pathlib import Path

from unspool.cli.diagnose.texts import add_text_options, asked_texts
from unspool.cli.evaluate.corpus_perplexity import read_corpus
from unspool.cli.model_loading import load_speaker
from unspool.cli.output import json_line
from unspool.cli.parser import add_running_options, positive
from unspool.cli.ray_options import add_ray_options, without_ray
from unspool.cli.reserved_file import reserved
from unspool.cli.streams import tell

SUMMARY = "Measure a model on a text: perplexity and calibration."
EXAMPLES = """examples:
  unspool evaluate model smollm2 --text book.txt --document file
  unspool evaluate model bible --text corpus/ --ray --workers 8 --output perplexity/
  unspool evaluate model runs/dates --text pairs.tsv --json --figure reliability.svg

A run reads the columns and fields of a file as it did in training.
Bits a byte compare models of different tokenizers, perplexities do not. ECE is the distance between
confidence and accuracy of the most probable token; the figure is the reliability diagram.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool evaluate model` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_text_options(parser, required=True)
    parser.add_argument("--limit", type=positive, metavar="N", help="read the first N texts of the file only")
    parser.add_argument(
        "--context", type=positive, metavar="N", help="tokens read at once (default: 1024, if the model can)"
    )
    parser.add_argument("--bins", type=positive, default=15, metavar="N", help="of confidence (default: 15)")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="with --ray: where the work is kept, block by block"
    )
    add_ray_options(parser, "--text")


def run(args: argparse.Namespace) -> int:
    """Read, measure, tell."""
    if args.ray:
        return read_corpus(args)
    without_ray(args)
    if args.output is not None:
        raise ValueError("--output goes with --ray: give that, too")
    args.text.open("rb").close()  # what cannot be read must fail before the work
    from unspool.diagnose.drawing import named
    from unspool.diagnose.reliability_picture import draw_reliability
    from unspool.evaluate.confidence_calibration import token_calibration
    from unspool.evaluate.text_perplexity import perplexity

    if args.figure:
        named(args.figure)
    with reserved(args.figure):
        model = load_speaker(args)
        sources, texts = asked_texts(model, args)
        try:
            found = perplexity(model, texts, sources, context=args.context)
            sure = token_calibration(model, texts, sources, context=args.context, bins=args.bins)
        except ValueError as error:
            raise ValueError(f"{args.text}: {error}") from error
        if args.figure:
            draw_reliability(sure, args.figure)
    size = sum(len(text.encode()) for text in texts)
    bits = found.nats / log(2) / size
    if args.json:
        print(
            json_line(
                {
                    "texts": len(texts),
                    "tokens": found.tokens,
                    "perplexity": found.value,
                    "bits_per_byte": bits,
                    "by_text": found.by_text,
                    "calibration": asdict(sure),
                }
            )
        )
    else:
        print(f"perplexity   {found.value:.3f}   of {found.tokens:,} tokens in {len(texts)} texts")
        print(f"bits a byte  {bits:.4f}")
        print(f"accuracy     {sure.accuracy:.4f}   of the most probable token")
        print(f"confidence   {sure.confidence:.4f}   on average")
        print(f"ECE          {sure.ece:.4f}   in {args.bins} bins; the worst is off by {sure.worst:.3f}")
        print(f"  by chance  {sure.null.low:.4f} to {sure.null.high:.4f} if it were perfectly calibrated")
    if args.figure:
        tell(f"wrote {args.figure}")
    return 0
