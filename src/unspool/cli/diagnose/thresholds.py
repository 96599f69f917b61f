"""`unspool diagnose thresholds`: the settings at which all samplers reject equally many human tokens."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from unspool.cli.diagnose.texts import add_text_options, asked_texts
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, tell
from unspool.cli.parser import add_running_options, natural, positive

if TYPE_CHECKING:
    from unspool.diagnose.critical_settings import Match

SUMMARY = "Set every sampler so that it rejects the same share of the tokens of a text."
EXAMPLES = """examples:
  unspool diagnose thresholds smollm2 --text book.txt --document file
  unspool diagnose thresholds smollm2 --text articles.jsonl --share 0.01 0.05 --json

The text should be one that people wrote. At equal shares of rejected human tokens, samplers compare fairly.
A text longer than what the model reads at once is read in windows that overlap by half. An encoder–decoder
is measured on the targets of pairs. The interval is that of the share on other text of the same kind.
Without a single output matrix (KerBS, mixtures) there is no basis-aware test: its rows are left out.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose thresholds` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_text_options(parser, required=True)
    parser.add_argument("--limit", type=positive, metavar="N", help="read the first N texts of the file only")
    parser.add_argument(
        "--share",
        type=_share,
        nargs="+",
        default=[0.01],
        metavar="S",
        help="shares of tokens to reject (default: 0.01, which is 1 %%)",
    )
    parser.add_argument(
        "--rank",
        type=_rank,
        default="auto",
        metavar="N",
        help='directions that the basis-aware test looks at, or "full" (default: 20, if there are so many)',
    )
    parser.add_argument(
        "--basis-tokens",
        type=natural,
        default=2000,
        metavar="N",
        help="tokens that the basis-aware test is made on; 0 leaves it out (default: %(default)s)",
    )
    parser.add_argument(
        "--context", type=positive, metavar="N", help="tokens read at once (default: 1024, if the model can)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each sampler and share")


def run(args: argparse.Namespace) -> int:
    """Read the text once, match every sampler."""
    args.text.open("rb").close()  # what cannot be read must fail before the work

    from rich.console import Console
    from rich.progress import Progress

    from unspool.diagnose.matched_thresholds import thresholds

    model = load_speaker(args)
    sources, texts = asked_texts(model, args)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("tokens", total=None)
        try:
            found = thresholds(
                model,
                texts,
                args.share,
                sources=sources,
                rank=args.rank,
                basis_tokens=args.basis_tokens,
                context=args.context,
                progress=lambda done, total: progress.update(bar, completed=done, total=total),
            )
        except ValueError as error:
            raise ValueError(f"{args.text}: {error}") from error
    if args.basis_tokens and model.output_matrix is None:
        tell(f"the basis-aware samplers are left out: {args.model} has no single output matrix")
    if args.json:
        for match in found:
            print(json_line(asdict(match)))
    else:
        _print_table(found)
    return 0


def _print_table(found: Sequence[Match]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal and console.width < 100:
        console.width = 100
    names = ["rejects", "exactly", "95 % interval", "of tokens"]
    if console.width < 70:  # the decoder needs the room; --json has the interval
        names.remove("95 % interval")
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("decoder", overflow="fold")
    for match in sorted(found, key=lambda match: match.share):
        cells = {
            "rejects": f"{match.share:.2%}",
            "exactly": f"{match.rejected:.2%}",
            "95 % interval": f"{100 * match.low:.2f}–{match.high:.2%}",
            "of tokens": f"{match.tokens:,}",
        }
        table.add_row(*(cells[name] for name in names), match.decoder)
    console.print(table)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to below 1, such as 0.01")
    return share


def _rank(text: str) -> int | Literal["auto"] | None:
    if text == "auto":
        return "auto"
    return None if text == "full" else natural(text)
