"""`unspool diagnose calibration | exposure`: confidence against accuracy, and exposure bias."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.models import load_model
from unspool.cli.output import figure_file, print_json, print_message, print_table
from unspool.cli.parser import Command, add_figure_option, add_json_option, add_model_argument, positive
from unspool.cli.texts import add_reference_options, check_readable, reference_texts, text_layout

if TYPE_CHECKING:
    from unspool.diagnose.exposure_bias import Exposure

CALIBRATION_EXAMPLES = """examples:
  unspool diagnose calibration smollm2 --text book.txt --document file
  unspool diagnose calibration runs/dates --bins 10 --figure reliability.svg --json

Compares the probability of the most probable token with how often it is the right one. Texts are
read in pieces of --length tokens after a prompt of --prompt tokens, which is not scored.
"""
EXPOSURE_EXAMPLES = """examples:
  unspool diagnose exposure runs/dates
  unspool diagnose exposure smollm2 --text book.txt --document file --texts 32
  unspool diagnose exposure runs/language --lengths 1 4 16 --json

Measures the loss of the next tokens of a text after n of its own tokens, and after n tokens sampled
from the model. The gap is above 0 for a perfect model, too: it is also measured on references
sampled from the model and subtracted. The rest is the excess, with a 95 % interval. A run trained
on a language of the package (data.kind = "language") is compared with the exact probabilities
instead; a perfect model then has a gap of 0.

Without --text, a run is measured on its validation set. A language model gets the first --prompt
tokens of each text, an encoder–decoder the source.
"""


# ---- calibration


def _add_calibration_options(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_reference_options(parser, texts=128)
    parser.add_argument(
        "--length", type=positive, default=256, metavar="N", help="tokens per piece (default: 256)"
    )
    parser.add_argument(
        "--bins", type=positive, default=15, metavar="N", help="bins of confidence (default: 15)"
    )
    add_figure_option(parser)
    add_json_option(parser)


def _calibration(args: argparse.Namespace) -> int:
    from unspool.evaluate.confidence_calibration import pair_calibration
    from unspool.plots.figures import draw_reliability

    with figure_file(args.figure):
        model = load_model(args)
        texts = reference_texts(model, args, max_tokens=args.prompt + args.length)
        result = pair_calibration(model, texts.pairs, bins=args.bins)
        if args.figure:
            draw_reliability(result, args.figure)
    if args.json:
        print_json({"of": texts.source, "verdict": result.verdict, **asdict(result)})
    else:
        print(f"the most probable token, on {texts.source}, {result.count:,} positions")
        print_table(
            ["confidence", "positions", "mean", "right"],
            [
                [
                    f"{it.low:.2f} … {it.high:.2f}",
                    f"{it.count:,}",
                    f"{it.confidence:.3f}",
                    f"{it.accuracy:.3f}",
                ]
                for it in result.bins
                if it.count
            ],
        )
        print(result.verdict)
    return 0


# ---- exposure


def _add_exposure_options(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_reference_options(parser, texts=128, prompt=8)
    parser.add_argument(
        "--lengths",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        metavar="N",
        help="numbers of sampled tokens (default: 1 2 4 8 16 32)",
    )
    parser.add_argument(
        "--span", type=positive, default=8, metavar="N", help="tokens that are scored after them (default: 8)"
    )
    add_json_option(parser)


def _exposure(args: argparse.Namespace) -> int:
    check_readable(args.text)
    from unspool.diagnose.evaluation_texts import find_continuations
    from unspool.diagnose.exposure_bias import exposure, true_exposure

    model = load_model(args)
    texts = find_continuations(
        model,
        Path(args.model),
        args.text,
        args.prompt,
        args.prompt + max(args.lengths) + args.span,
        text_layout(args),
        warn=print_message,
    )
    if texts.language is not None:
        result = true_exposure(model, texts.language, args.lengths, texts=args.texts, seed=args.seed)
    else:
        result = exposure(model, texts.pairs[: args.texts], args.lengths, span=args.span, seed=args.seed)
    if args.json:
        points = [{**asdict(it), "gap": it.gap, "excess": it.excess} for it in result.points]
        total = {"gap": result.gap, "excess": result.excess, "interval": asdict(result)["interval"]}
        print_json({"of": texts.source, **total, "verdict": result.verdict, "points": points})
    else:
        _print_exposure(result, texts.source)
    return 0


def _print_exposure(result: Exposure, source: str) -> None:
    has_truth = result.points[0].lost is not None
    what = "KL from the truth" if has_truth else "−log p of the text's next tokens"
    columns = ["lost", "own, if possible"] if has_truth else ["gap", "perfect model"]
    rows = []
    for it in result.points:
        cells = [f"{it.gap:.4f}", f"{it.perfect:.4f}"]
        if it.lost is not None:
            cells = [f"{it.lost:.1%}", "–" if it.possible is None else f"{it.possible:.4f}"]
        interval = "" if it.interval is None else f"{it.interval.low:.3f} to {it.interval.high:.3f}"
        numbers = [str(it.length), f"{it.right:.4f}", f"{it.own:.4f}"]
        rows.append([*numbers, *cells, f"{it.excess:.4f}", interval, str(it.texts)])
    print(f"{what}, nats per token, on {source}")
    print_table(
        ["own tokens", "after right", "after own", *columns, "excess", "95 % interval", "texts"], rows
    )
    print(result.verdict)


CALIBRATION = Command(
    "Compare a model's confidence with its accuracy: ECE and the reliability diagram.",
    CALIBRATION_EXAMPLES,
    _add_calibration_options,
    _calibration,
)
EXPOSURE = Command(
    "Measure exposure bias: the loss after a model's own tokens and after right ones.",
    EXPOSURE_EXAMPLES,
    _add_exposure_options,
    _exposure,
)
