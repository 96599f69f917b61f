"""--text: options that choose the texts or pairs a model is measured on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.parser import add_seed_option, number, path_option, positive
from unspool.data.records import Layout
from unspool.evaluate.text_files import layout_of_run, read_pairs, read_texts

if TYPE_CHECKING:
    from unspool.diagnose.evaluation_texts import Continuations

TEXT_HELP = (
    'texts: one per line, or {"text": "…"} per line of a .jsonl file; for an encoder–decoder pairs: '
    '{"source": "…", "target": "…"} per line, or the columns of a .tsv file'
)


def add_text_options(parser: argparse.ArgumentParser, *, required: bool = False, default: str = "") -> None:
    note = f" (default: {default})" if default else ""
    path_option("--text", TEXT_HELP + note, required=required)(parser)
    parser.add_argument(
        "--document",
        choices=("line", "file"),
        help="a text is a line or the whole file, in a plain file (default: as in training, or line)",
    )
    add_columns_option(parser)


def add_columns_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns",
        type=positive,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="columns of a pair, counted from 1 (default: as in training, or 1 2)",
    )


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    number("--limit", None, "read only the first N texts of the file")(parser)
    number("--context", None, "tokens per window (default: 1024 or the model's context)")(parser)


def add_reference_options(parser: argparse.ArgumentParser, texts: int, prompt: int = 16) -> None:
    """--text, --texts, --prompt and --seed of a diagnosis that compares a model with reference texts."""
    add_text_options(parser, default="the run's validation set")
    number("--texts", texts, "use at most N texts")(parser)
    number("--prompt", prompt, "tokens of each text that are the prompt")(parser)
    add_seed_option(parser)


def text_layout(args: argparse.Namespace) -> Layout:
    """The file format that the options describe, or that the run was trained on."""
    layout = layout_of_run(Path(args.model)) if args.model else Layout()
    if args.columns is not None:
        return Layout(columns=tuple(args.columns))
    return layout if args.document is None else Layout(fields=layout.fields, document=args.document)


def given_texts(model: Any, args: argparse.Namespace) -> tuple[list[str] | None, list[str]]:
    """The sources (None for a language model) and texts in --text."""
    if model.tokenizer is None:
        raise ValueError(f"{args.model} does not have a tokenizer, so it cannot read {args.text}")
    layout = text_layout(args)
    if model.is_encoder_decoder:
        return read_pairs(args.text, layout, args.limit)
    return None, read_texts(args.text, layout, args.limit)


def reference_texts(model: Any, args: argparse.Namespace, length: int) -> Continuations:
    """The reference texts that the options choose, with at most `length` tokens after the prompt."""
    from unspool.diagnose.evaluation_texts import find_continuations

    size, layout = args.prompt + length, text_layout(args)
    return find_continuations(model, Path(args.model), args.text, args.prompt, size, layout)
