"""`--text`: the texts or pairs to measure on, as `unspool.data.records` reads them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.output import tell
from unspool.cli.parser import natural, positive
from unspool.data.records import Layout
from unspool.evaluate.text_files import layout_of_run, read_pairs, read_texts

if TYPE_CHECKING:
    from unspool.diagnose.evaluation_texts import Continuations

HELP = (
    'texts: one a line, or {"text": "…"} a line in a .jsonl file; for an encoder–decoder pairs: '
    '{"source": "…", "target": "…"} a line, or the columns of a .tsv file'
)


def add_text_options(parser: argparse.ArgumentParser, *, required: bool = False, default: str = "") -> None:
    """`--text`, and how its file is read."""
    told = f" (default: {default})" if default else ""
    parser.add_argument("--text", type=Path, required=required, metavar="PATH", help=HELP + told)
    parser.add_argument(
        "--document",
        choices=("line", "file"),
        help="what one text is in a plain file: a line, or the whole file (default: as in training, or line)",
    )
    add_columns_option(parser)


def add_columns_option(parser: argparse.ArgumentParser) -> None:
    """Which columns of a file are a pair."""
    parser.add_argument(
        "--columns",
        type=positive,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="columns of a pair, counted from 1 (default: as in training, or 1 2)",
    )


def layout_of_args(args: argparse.Namespace) -> Layout:
    """How a file is read: as the options say, or else as the run was trained."""
    found = layout_of_run(Path(args.model)) if getattr(args, "model", None) else Layout()
    if args.columns is not None:
        return Layout(columns=tuple(args.columns))
    document = getattr(args, "document", None)
    return found if document is None else Layout(fields=found.fields, document=document)


def asked_texts(model: Any, args: argparse.Namespace) -> tuple[list[str] | None, list[str]]:
    """What `args.text` holds for this model: an encoder–decoder has sources, too."""
    if model.tokenizer is None:
        raise ValueError(f"{args.model} has no tokenizer, so it cannot read {args.text}")
    layout = layout_of_args(args)
    if model.is_encoder_decoder:
        return read_pairs(args.text, layout, args.limit)
    return None, read_texts(args.text, layout, args.limit, warn=tell)


def add_gold_options(parser: argparse.ArgumentParser, texts: int) -> None:
    """Options that choose reference texts."""
    add_text_options(parser, default="the run's validation set")
    parser.add_argument(
        "--texts", type=positive, default=texts, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt", type=positive, default=16, metavar="N", help="tokens that are given (default: 16)"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)")


def gold_texts(model: Any, args: argparse.Namespace, max_tokens: int) -> Continuations:
    """The reference texts that the options of `add_gold_options` choose."""
    from unspool.diagnose.evaluation_texts import find_continuations

    if args.text:  # an unreadable file must fail before the work
        args.text.open("rb").close()
    layout = layout_of_args(args)
    found = find_continuations(model, Path(args.model), args.text, args.prompt, max_tokens, layout, warn=tell)
    return found.take(args.texts, args.seed)
