"""`unspool diagnose thresholds | picture`: compare samplers by the tokens that they reject and keep."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Literal

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message, progress_bar
from unspool.cli.parser import add_model_argument, command, natural, number, option
from unspool.cli.texts import add_reading_options, add_text_options, given_texts

if TYPE_CHECKING:
    from unspool.diagnose.matched_thresholds import Match

THRESHOLDS_EXAMPLES = """examples:
  unspool diagnose thresholds smollm2 --text book.txt --document file
  unspool diagnose thresholds smollm2 --text articles.jsonl --share 0.01 0.05 --json

Use a text written by people: samplers are compared fairly if they reject the same share of human
tokens. A text longer than the context is read in windows that overlap by half. An encoder–decoder
is measured on the targets of pairs. The interval is that of the share on other text of the same
kind. The basis-aware test needs a single output matrix: it is left out for KerBS and mixtures.
"""
PICTURE_EXAMPLES = """examples:
  unspool diagnose picture smollm2 "The best thing about summer is" --figure ranks.svg
  unspool diagnose picture smollm2 "Once upon a" --decoder "Sample(MinP(0.1))" --top 30 --figure ranks.png

A decoder is a Sample with truncations, or with BasisAware, which tests the tokens one by one.
Decoders of the default selection that do not work with the model are left out with a message.
"""
THRESHOLD_COLUMNS = {
    "rejects": "{it.share:.2%}",
    "exactly": "{it.rejected:.2%}",
    "95 % interval": "{it.low:.2%}–{it.high:.2%}",
    "of tokens": "{it.tokens:,}",
    "decoder": "{it.decoder}",
}
MIN_INTERVAL_WIDTH = 70
"""Narrower terminals do not show the interval."""


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: give a number of 0 or more and below 1")
    return share


def _rank(text: str) -> int | Literal["auto"] | None:
    if text == "auto":
        return "auto"
    return None if text == "full" else natural(text)


@command(
    THRESHOLDS_EXAMPLES,
    add_model_argument,
    partial(add_text_options, required=True),
    add_reading_options,
    option(
        "--share",
        type=_share,
        nargs="+",
        default=[0.01],
        metavar="S",
        help="shares of tokens to reject (default: 0.01)",
    ),
    option(
        "--rank",
        type=_rank,
        default="auto",
        metavar="N",
        help='singular vectors that the basis-aware test uses, or "full" (default: at most 20)',
    ),
    number("--basis-tokens", 2000, "tokens that get the basis-aware test; 0 leaves it out", minimum=0),
    json="one JSON object per sampler and share",
)
def match_thresholds(args: argparse.Namespace) -> Result:
    """Find the settings at which all samplers reject the same share of human tokens."""
    from unspool.diagnose.matched_thresholds import thresholds

    model = load_model(args)
    sources, texts = given_texts(model, args)
    with progress_bar(description="tokens") as bar:
        try:
            matches = thresholds(
                model,
                texts,
                args.share,
                sources=sources,
                rank=args.rank,
                basis_tokens=args.basis_tokens,
                context=args.context,
                progress=bar.update,
            )
        except ValueError as error:
            raise ValueError(f"{args.text}: {error}") from error
    if args.basis_tokens and model.output_matrix is None:
        print_message(f"basis-aware samplers are left out: {args.model} does not have a single output matrix")
    return Result(map(asdict, matches), [_thresholds_table(matches)])


def _thresholds_table(matches: Sequence[Match]) -> Table:
    columns = dict(THRESHOLD_COLUMNS)
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < MIN_INTERVAL_WIDTH:
        del columns["95 % interval"]  # --json has it
    return Table.of(columns, sorted(matches, key=lambda match: match.share), left=["decoder"])


@command(
    PICTURE_EXAMPLES,
    add_model_argument,
    option("prompt", metavar="PROMPT", help="text before the token"),
    number("--top", 60, "tokens to show"),
    add_decoders_option,
    figure=True,
    json="one JSON object: prompt, tokens, p, kept (by decoder)",
)
def picture(args: argparse.Namespace) -> Result:
    """Draw the most probable next tokens, and which of them each sampler keeps."""
    import unspool as us  # here, because it imports torch
    from unspool.diagnose.ranked_tokens import DEFAULT_RULES, rank_tokens
    from unspool.plots.figures import draw_ranks

    if not args.figure and not args.json:
        raise ValueError("no output: give --figure FILE or --json")
    specs = args.decoder or list(DEFAULT_RULES)
    decoders = []
    for spec in specs:
        decoder = us.parse(spec)
        if not isinstance(decoder, us.Sample):
            raise ValueError(f"{spec} does not keep and cut tokens: give a Sample, such as Sample(TopP(0.9))")
        decoders.append(decoder)
    on_error = None if args.decoder else _report_left_out
    picture = rank_tokens(load_model(args), args.prompt, decoders, specs, top=args.top, on_error=on_error)
    return Result([asdict(picture)], [], partial(draw_ranks, picture))


def _report_left_out(spec: str, error: ValueError) -> None:
    print_message(f"{spec} is left out: {error}")
