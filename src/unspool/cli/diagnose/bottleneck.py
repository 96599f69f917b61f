"""`unspool diagnose bottleneck`: the rank of a model's log-probabilities, and what it cannot express."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.diagnose.texts import read_texts
from unspool.cli.output import json_line
from unspool.cli.parser import natural, positive

if TYPE_CHECKING:
    from unspool.diagnose.bottleneck import Bottleneck

SUMMARY = "Measure the softmax bottleneck: the rank of a model's log-probabilities over many contexts."
EXAMPLES = """examples:
  unspool diagnose bottleneck smollm2
  unspool diagnose bottleneck smollm2 --text book.txt -o spectrum.svg
  unspool diagnose bottleneck runs/kerbs --text book.txt --contexts 300 --json

A head with one output matrix of width D cannot exceed rank D + 1, or D + 2 with a bias, however many contexts
there are.
Without --text the model is measured on text that it says itself.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose bottleneck` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    parser.add_argument(
        "--device", default="cpu", metavar="NAME", help="where it runs (default: %(default)s)"
    )
    parser.add_argument(
        "--text", type=Path, metavar="PATH", help="the text, or JSON lines (default: the model's own words)"
    )
    parser.add_argument(
        "--contexts",
        type=positive,
        metavar="N",
        help="places of the text to measure (default: 64 more than the rank can be, so D + 65 or D + 66 with "
        "a bias; 512 where there is no single output matrix)",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="of the model's own words (default: 0)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all singular values")


def run(args: argparse.Namespace) -> int:
    """Read the text, measure, draw."""
    texts = None if args.text is None else read_texts(args.text)

    import unspool as us  # only now: the command line itself must not wait for torch
    from unspool.diagnose.bottleneck import bottleneck, fitting_contexts, own_text
    from unspool.diagnose.drawing import named

    if args.output:
        named(args.output).touch()  # a path that cannot be written must fail before the work, not after it

    model = us.load(args.model, device=args.device)
    try:
        given = texts or own_text(model, args.contexts or fitting_contexts(model), args.seed)
        found = bottleneck(model, given, args.contexts)
    except ValueError as error:
        raise ValueError(f"{args.text or args.model}: {error}") from error
    if args.json:
        derived = {"conclusive": found.conclusive, "tau": found.tau, "uniform_delta": found.uniform_delta}
        print(json_line(asdict(found) | derived))
    else:
        print("\n".join(_lines(found)))
    if args.output:
        from unspool.diagnose.spectrum_picture import draw_spectrum

        draw_spectrum(found, args.output)
        print(f"unspool: wrote {args.output}", file=sys.stderr)
    return 0


def _lines(found: Bottleneck) -> list[str]:
    limit = "no single output matrix: any rank" if found.limit is None else f"at most {found.limit_said}"
    lines = [
        f"contexts             {found.contexts:,} of {found.vocab_size:,} words",
        f"rank of log p        {found.rank:,} ({limit})",
    ]
    if found.limit is not None and found.limit >= found.vocab_size:
        lines.append("                     there are no more words than that: no bottleneck")
    elif not found.conclusive:
        lines.append("                     too few contexts to tell: give a longer text or more --contexts")
    lines.append(f"singular values      {_some(found.singular_values)}")
    if found.weight_singular_values:
        lines.append(f"… of the matrix      {_some(found.weight_singular_values)}")
    uniform = f"{found.uniform_delta:.2f} if uniform"
    lines.append(f"underestimation      at most δ = {found.delta:.2f} nats anywhere ({uniform})")
    lines.append(
        f"overestimation       at most 1 − e^(−δ) = {_short(found.delta)}: what is above is possible"
    )
    return lines


def _short(delta: float) -> str:
    """1 − e^(−δ), which is 1 to all digits that are usually shown where δ is large."""
    rest = math.exp(-delta)
    return f"1 − {rest:.2g}" if rest < 1e-3 else f"{1 - rest:.3f}"


def _some(values: tuple[float, ...]) -> str:
    """First, middle and last ones, with their ranks."""
    last = len(values) - 1
    ranks = sorted({0, min(1, last), last // 4, last // 2, 3 * last // 4, last})
    return "  ".join(f"{rank + 1}: {values[rank]:.3g}" for rank in ranks)
