"""`unspool diagnose exposure`: how much worse a model predicts after its own tokens than after right ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.diagnose.texts import add_text_options, layout_of_args
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, tell
from unspool.cli.parser import add_running_options, natural, positive

if TYPE_CHECKING:
    from unspool.diagnose.exposure_bias import Exposure

SUMMARY = "Measure exposure bias: how much worse a model does after its own tokens than after right ones."
EXAMPLES = """examples:
  unspool diagnose exposure runs/dates
  unspool diagnose exposure smollm2 --text book.txt --document file --texts 32
  unspool diagnose exposure runs/language --lengths 1 4 16 --json

The loss of a text's next tokens is measured after so many tokens of the text, and after as many that the
model has drawn instead. The gap between the two is above 0 for a perfect model, too; it is measured on
references drawn from the model, and subtracted: what remains is the excess, with a 95 % interval. A run that
learnt a language of the package (data.kind = "language") is compared with the truth: the gap is that of the
exact divergence, a perfect model has 0, and texts that the language cannot say stay in.

Without --text, a run is measured on what it was validated on; a language model is given the first --prompt
tokens of each text, an encoder–decoder the source.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose exposure` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_text_options(parser, default="the run's validation set")
    parser.add_argument("--texts", type=positive, default=128, metavar="N", help="at most (default: 128)")
    parser.add_argument(
        "--prompt", type=positive, default=8, metavar="N", help="tokens that are given (default: 8)"
    )
    parser.add_argument(
        "--lengths",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        metavar="N",
        help="numbers of own words (default: 1 2 4 8 16 32)",
    )
    parser.add_argument(
        "--span", type=positive, default=8, metavar="N", help="tokens that are scored after them (default: 8)"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Find texts, measure, tell."""
    if args.text:  # what cannot be read must fail before the work
        args.text.open().close()
    from unspool.diagnose.evaluation_texts import find_continuations
    from unspool.diagnose.exposure_bias import exposure, true_exposure

    model = load_speaker(args)
    max_tokens = args.prompt + max(args.lengths) + args.span
    found = find_continuations(
        model, Path(args.model), args.text, args.prompt, max_tokens, layout_of_args(args), warn=tell
    )
    if found.language is not None:
        measured = true_exposure(model, found.language, args.lengths, texts=args.texts, seed=args.seed)
    else:
        measured = exposure(model, found.pairs[: args.texts], args.lengths, span=args.span, seed=args.seed)
    if args.json:
        points = [{**asdict(it), "gap": it.gap, "excess": it.excess} for it in measured.points]
        total = {"gap": measured.gap, "excess": measured.excess, "interval": asdict(measured)["interval"]}
        print(json_line({"of": found.source, **total, "verdict": measured.verdict, "points": points}))
    else:
        _print_table(measured, found.source)
    return 0


def _print_table(found: Exposure, whose: str) -> None:
    has_truth = found.points[0].lost is not None
    what = "KL from the truth" if has_truth else "−log p of the text's next tokens"
    columns = ["lost", "own, if possible"] if has_truth else ["gap", "perfect model"]
    rows = []
    for it in found.points:
        cells = [f"{it.gap:.4f}", f"{it.perfect:.4f}"]
        if it.lost is not None:
            cells = [f"{it.lost:.1%}", "–" if it.possible is None else f"{it.possible:.4f}"]
        interval = "" if it.interval is None else f"{it.interval.low:.3f} to {it.interval.high:.3f}"
        numbers = [str(it.length), f"{it.right:.4f}", f"{it.own:.4f}"]
        rows.append([*numbers, *cells, f"{it.excess:.4f}", interval, str(it.texts)])
    print(f"{what}, nats a token, on {whose}")
    header = ["own tokens", "after right", "after own", *columns, "excess", "95 % interval", "texts"]
    print_rows(header, rows)
    print(found.verdict)
