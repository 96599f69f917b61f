"""`unspool diagnose exposure`: how much worse a model does after its own words than after the right ones."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.diagnose.material import gold_material
from unspool.cli.model_loading import load_speaker
from unspool.cli.output import json_line
from unspool.cli.parser import add_running_options, natural, positive

if TYPE_CHECKING:
    from unspool.diagnose.exposure_bias import Exposure

SUMMARY = "Measure exposure bias: how much worse a model does after its own words than after the right ones."
EXAMPLES = """examples:
  unspool diagnose exposure runs/dates
  unspool diagnose exposure smollm2 --text book.txt --texts 32
  unspool diagnose exposure runs/language --lengths 1 4 16 --json

The loss of a text's next tokens is measured after so many of the text's own tokens, and after as many that
the model has drawn instead. A run that learnt a language of the package (data.kind = "language") is set
beside the truth: the divergence from it after right words and after the model's own, exactly, and the share
of the model's texts that the language cannot speak.

Without --text, a run is measured on what it was validated on; a language model is given the first --prompt
tokens of each text, an encoder–decoder the source.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose exposure` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    parser.add_argument(
        "--text", type=Path, metavar="PATH", help="a text, or JSON lines (default: the run's validation set)"
    )
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
    from unspool.diagnose.exposure_bias import exposure, true_exposure

    model = load_speaker(args)
    room = args.prompt + max(args.lengths) + args.span
    found = gold_material(model, Path(args.model), args.text, args.prompt, room)
    if found.language is not None:
        measured = true_exposure(model, found.language, args.lengths, texts=args.texts, seed=args.seed)
    else:
        measured = exposure(model, found.texts[: args.texts], args.lengths, span=args.span, seed=args.seed)
    if args.json:
        points = [{**asdict(it), "gap": it.gap} for it in measured.points]
        print(json_line({"of": found.whose, "gap": measured.gap, "points": points}))
    else:
        print("\n".join(_lines(measured, found.whose)))
    return 0


def _lines(found: Exposure, whose: str) -> list[str]:
    true = found.points[0].lost is not None
    what = "divergence from the truth, nats" if true else "−log p of the text's next tokens, nats"
    lines = [
        f"{what}, on {whose}",
        "",
        "own words   after right ones   after its own      gap   texts" + "    lost" * true,
    ]
    for it in found.points:
        lost = "" if it.lost is None else f"{it.lost:8.1%}"
        lines.append(
            f"{it.length:9}   {it.right:16.4f}   {it.own:13.4f}   {it.gap:6.3f}   {it.texts:5}{lost}"
        )
    return [*lines, "", f"mean gap    {found.gap:.4f}"]
