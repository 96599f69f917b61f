"""`unspool diagnose calibration | exposure`: confidence against accuracy, and exposure bias."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from unspool.cli.models import load_model
from unspool.cli.output import Result, Table
from unspool.cli.parser import add_model_argument, command, number
from unspool.cli.texts import add_reference_options, reference_texts

if TYPE_CHECKING:
    from unspool.diagnose.exposure_bias import Exposure

CALIBRATION_EXAMPLES = """examples:
  unspool diagnose calibration smollm2 --text book.txt --document file
  unspool diagnose calibration runs/dates --bins 10 --figure reliability.svg --json

Compares the probability of the most probable token with how often it is the right one. Texts are
read in pieces of --length tokens after a prompt of --prompt tokens, which is not scored.
"""
CALIBRATION_COLUMNS = {
    "confidence": "{it.low:.2f} … {it.high:.2f}",
    "positions": "{it.count:,}",
    "mean": "{it.confidence:.3f}",
    "right": "{it.accuracy:.3f}",
}
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


@command(
    CALIBRATION_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=128),
    number("--length", 256, "tokens per piece"),
    number("--bins", 15, "bins of confidence"),
    figure=True,
)
def calibration(args: argparse.Namespace) -> Result:
    """Compare a model's confidence with its accuracy: ECE and the reliability diagram."""
    from unspool.evaluate.confidence_calibration import pair_calibration
    from unspool.plots.figures import draw_reliability

    model = load_model(args)
    texts = reference_texts(model, args, max_tokens=args.prompt + args.length).take(args.texts, args.seed)
    result = pair_calibration(model, texts.pairs, bins=args.bins)
    title = f"the most probable token, on {texts.source}, {result.count:,} positions"
    table = Table.of(CALIBRATION_COLUMNS, [bin_ for bin_ in result.bins if bin_.count])
    return Result(
        [{"of": texts.source, "verdict": result.verdict, **asdict(result)}],
        [title, table, result.verdict],
        partial(draw_reliability, result),
    )


@command(
    EXPOSURE_EXAMPLES,
    add_model_argument,
    partial(add_reference_options, texts=128, prompt=8),
    number("--lengths", [1, 2, 4, 8, 16, 32], "numbers of sampled tokens"),
    number("--span", 8, "tokens that are scored after them"),
)
def measure_exposure(args: argparse.Namespace) -> Result:
    """Measure exposure bias: the loss after a model's own tokens and after right ones."""
    from unspool.diagnose.exposure_bias import exposure, true_exposure

    model = load_model(args)
    texts = reference_texts(model, args, args.prompt + max(args.lengths) + args.span)
    if texts.language is not None:
        result = true_exposure(model, texts.language, args.lengths, texts=args.texts, seed=args.seed)
    else:
        result = exposure(model, texts.pairs[: args.texts], args.lengths, span=args.span, seed=args.seed)
    points = [{**asdict(point), "gap": point.gap, "excess": point.excess} for point in result.points]
    total = {"gap": result.gap, "excess": result.excess, "interval": asdict(result)["interval"]}
    what = "−log p of the text's next tokens" if result.points[0].lost is None else "KL from the truth"
    return Result(
        [{"of": texts.source, **total, "verdict": result.verdict, "points": points}],
        [f"{what}, nats per token, on {texts.source}", _exposure_table(result), result.verdict],
    )


def _exposure_table(result: Exposure) -> Table:
    columns = ["gap", "perfect model"] if result.points[0].lost is None else ["lost", "own, if possible"]
    rows = []
    for point in result.points:
        cells = [f"{point.gap:.4f}", f"{point.perfect:.4f}"]
        if point.lost is not None:
            cells = [f"{point.lost:.1%}", "–" if point.possible is None else f"{point.possible:.4f}"]
        interval = "" if point.interval is None else f"{point.interval.low:.3f} to {point.interval.high:.3f}"
        numbers = [str(point.length), f"{point.right:.4f}", f"{point.own:.4f}"]
        rows.append([*numbers, *cells, f"{point.excess:.4f}", interval, str(point.texts)])
    return Table(
        ["own tokens", "after right", "after own", *columns, "excess", "95 % interval", "texts"], rows
    )
