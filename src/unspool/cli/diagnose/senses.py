"""`unspool diagnose senses`: how many senses the words of a KerBS head have, how wide and how far apart."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.output import json_line, printable
from unspool.cli.parser import positive

if TYPE_CHECKING:
    from unspool.diagnose.senses import Senses
    from unspool.protocols import Text

SUMMARY = "Show the senses of the words of a KerBS head."
EXAMPLES = """examples:
  unspool diagnose senses runs/kerbs
  unspool diagnose senses runs/kerbs --words 100 --json
  unspool diagnose senses runs/kerbs -o senses.svg

Words with the most senses come first. θ is how wide a sense is; cos is between two senses of a word.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose senses` takes."""
    parser.add_argument("model", metavar="RUN", help="a run folder whose model has a KerBS head")
    parser.add_argument(
        "--device", default="cpu", metavar="NAME", help="where it runs (default: %(default)s)"
    )
    parser.add_argument(
        "--words", type=positive, default=20, metavar="N", help="words to show (default: %(default)s)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw them: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object for each word")


def run(args: argparse.Namespace) -> int:
    """Load the run, show its senses."""
    import unspool as us  # only now: the command line itself must not wait for torch
    from unspool.diagnose.drawing import named
    from unspool.diagnose.senses import senses

    if args.output:
        named(args.output).touch()  # a path that cannot be written must fail before the work, not after it
    model = us.load(args.model, device=args.device)
    try:
        found = senses(model)
    except TypeError as error:
        raise ValueError(f"{args.model}: {error}") from error
    if args.json:
        for it in found.words[: args.words]:
            print(json_line({**asdict(it), "text": _spelt(it.word, model.text)}))
    else:
        _print_table(found, args.words, model.text)
    if args.output:
        from unspool.diagnose.senses_picture import draw_senses

        draw_senses(found, args.output)
        print(f"unspool: wrote {args.output}", file=sys.stderr)
    return 0


def _print_table(found: Senses, words: int, text: Text | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    print(
        "words with "
        + ",  ".join(f"{number} {_plural(number)}: {count:,}" for number, count in found.by_number.items())
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("word", "senses", "θ", "cos"):
        table.add_column(name, no_wrap=True)
    for it in found.words[:words]:
        thetas = " ".join(f"{theta:+.2f}" for theta in it.thetas)
        cosines = "" if it.farthest is None else f"{it.farthest:.2f} … {it.closest:.2f}"
        table.add_row(printable(_spelt(it.word, text)), str(len(it.thetas)), thetas, cosines)
    console = Console(markup=False)
    if not console.is_terminal and console.width < 100:
        console.width = 100
    console.print(table)


def _plural(number: int) -> str:
    return "sense" if number == 1 else "senses"


def _spelt(word: int, text: Text | None) -> str:
    spelt = "" if text is None else text.decode([word])
    return repr(spelt) if spelt else f"#{word}"  # special tokens are spelt as nothing
