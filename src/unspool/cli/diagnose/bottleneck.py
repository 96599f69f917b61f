"""`unspool diagnose bottleneck`: the rank of a model's log-probabilities, and what it cannot express."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.diagnose.texts import add_text_options, layout_of_args
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, reserved, tell
from unspool.cli.parser import add_running_options, natural, positive

if TYPE_CHECKING:
    from unspool.diagnose.overestimation import Distance
    from unspool.diagnose.softmax_bottleneck import Bottleneck

SUMMARY = "Measure the softmax bottleneck: the rank of a model's log-probabilities over many contexts."
EXAMPLES = """examples:
  unspool diagnose bottleneck smollm2
  unspool diagnose bottleneck smollm2 --text book.txt --document file -o spectrum.svg
  unspool diagnose bottleneck runs/kerbs --text articles.jsonl --contexts 300 --json

A head with one output matrix of width D cannot exceed rank D + 1, or D + 2 with a bias, however many contexts
there are. δ bounds how far a true log-probability is underestimated, 1 − e^(−δ) how far a probability is
overestimated: a threshold there keeps nothing impossible.

Without --text the model is measured on text that it says itself. A run that learnt a language of the package
(data.kind = "language") is measured on sentences of the language, whose truth is known, and set beside it:
the model's error, the least error of any matrix of its rank (Eckart & Young), and its largest
underestimation. Impossible words have no finite logarithm: for the error, the truth gives a share s of the
probability to all words alike.

An encoder–decoder is measured on its run's validation pairs, or on those of --text; if there are none, on its
answers to random words.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose bottleneck` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_text_options(parser, default="as told below")
    parser.add_argument(
        "--contexts",
        type=positive,
        metavar="N",
        help="places of the text to measure (default: 64 more than the rank can be, so D + 65 or D + 66 with "
        "a bias; 512 where there is no single output matrix)",
    )
    parser.add_argument(
        "--seed",
        type=natural,
        default=0,
        metavar="N",
        help="of the model's own words, or of sentences (default: 0)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all singular values")


def run(args: argparse.Namespace) -> int:
    """Find something to read, measure, draw."""
    if args.text:  # what cannot be read, or written, must fail before the work
        args.text.open("rb").close()

    from unspool.diagnose.evaluation_texts import find_windows
    from unspool.diagnose.softmax_bottleneck import fitting_contexts, measure
    from unspool.plots.canvas import figure_path

    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        contexts = args.contexts or fitting_contexts(model)
        try:
            material = find_windows(
                model, Path(args.model), args.text, contexts, args.seed, layout_of_args(args), warn=tell
            )
            found = measure(model, material.windows, contexts)
            truth = material.distance_to_truth(model, contexts)
        except ValueError as error:
            where = str(args.text or args.model)
            raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
        if args.output:
            from unspool.plots.figures import draw_spectrum

            draw_spectrum(found, args.output)
    if args.json:
        derived = {"conclusive": found.conclusive, "tau": found.tau, "uniform_delta": found.uniform_delta}
        beside = {"texts": material.source, "truth": None if truth is None else asdict(truth)}
        print(json_line(asdict(found) | derived | beside))
    else:
        print("\n".join([*_lines(found, material.source), *([] if truth is None else _truth(found, truth))]))
    if args.output:
        tell(f"wrote {args.output}")
    return 0


def _lines(found: Bottleneck, whose: str) -> list[str]:
    limit = "no single output matrix: any rank" if found.limit is None else f"at most {found.limit_formula}"
    different = "" if found.distinct == found.contexts else f" ({found.distinct:,} different)"
    lines = [
        f"contexts             {found.contexts:,}{different} of {found.vocab_size:,} words, in {whose}",
        f"rank of log p        {found.rank:,} ({limit})",
    ]
    if found.limit is not None and found.limit >= found.vocab_size:
        lines.append("                     there are no more words than that: no bottleneck")
    elif not found.conclusive:
        few = "contexts" if found.distinct == found.contexts else "different contexts"
        lines.append(f"                     too few {few} to tell: give a longer text or more --contexts")
    lines.append(f"singular values      {_some(found.singular_values)}")
    if found.weight_singular_values:
        lines.append(f"… of the matrix      {_some(found.weight_singular_values)}")
    uniform = f"{found.uniform_delta:.2f} if uniform"
    lines.append(f"underestimation      at most δ = {found.delta:.2f} nats anywhere ({uniform})")
    lines.append(
        f"overestimation       at most 1 − e^(−δ) = {_short(found.delta)}; a word above it is possible"
    )
    return lines


def _truth(found: Bottleneck, truth: Distance) -> list[str]:
    least = "any rank can be reached, so that nothing bounds it"
    if truth.least is not None:
        least = f"no matrix of rank {found.limit:,} has less than {truth.least:.4g}"
    return [
        f"beside the truth     of rank {truth.rank:,}; s = {truth.share:g} makes every word possible",
        f"error of log p       {truth.reached:.4g}; {least}",
        f"underestimation      δ = {truth.delta:.2f} nats was found, and 1 − e^(−δ) = {_short(truth.delta)}",
        f"overestimation       {truth.overestimation:.3f} was found",
    ]


def _short(delta: float) -> str:
    """1 − e^(−δ), which is 1 to all digits that are usually shown where δ is large."""
    rest = math.exp(-delta)
    return f"1 − {rest:.2g}" if rest < 1e-3 else f"{1 - rest:.3f}"


def _some(values: tuple[float, ...]) -> str:
    """First, middle and last ones, with their ranks."""
    last = len(values) - 1
    ranks = sorted({0, min(1, last), last // 4, last // 2, 3 * last // 4, last})
    return "  ".join(f"{rank + 1}: {values[rank]:.3g}" for rank in ranks)
