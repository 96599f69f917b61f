"""`--text`: the texts or pairs to measure on, as `unspool.data.records` reads them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unspool.cli.output import tell
from unspool.cli.parser import positive
from unspool.data.records import Layout, Record, read_records

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


def layout_of_run(folder: Path) -> Layout:
    """How the training files of the run in this folder are written; the default if it is no run."""
    path = folder / "recipe.toml"
    if not path.is_file():
        return Layout()
    from unspool.training import read_recipe

    try:
        return layout_of(read_recipe(path).data)
    except ValueError:  # said by whoever needs the recipe
        return Layout()


def layout_of(data: object) -> Layout:
    """How the files of a recipe's [data] are written."""
    from unspool.data.line_formats import JSONL, TSV, LabelledLines, Lines, TaggedLines

    match data:
        case TSV():
            return Layout(columns=(data.source, data.target))
        case JSONL():
            names = {name: getattr(data, name) for name in ("text", "source", "target")}
            return Layout(fields={name: key for name, key in names.items() if key is not None})
        case LabelledLines():
            return Layout(text_column=data.text)
        case TaggedLines():
            return Layout(text_column=data.words)
        case Lines():
            return Layout(document=data.document)
    return Layout()


def text_records(path: Path, layout: Layout | None = None, limit: int | None = None) -> list[Record]:
    """The records of a file, the first `limit` of them; says how a plain file with several lines was read."""
    records = read_records(path, layout)
    if not records:
        raise ValueError(f"{path}: there is no text in this file")
    if len(records) > 1 and all(record.is_plain for record in records):
        tell(f"{path}: {len(records)} texts, one a line (--document file reads the file as one text)")
    return records[:limit]


def read_texts(path: Path, layout: Layout | None = None, limit: int | None = None) -> list[str]:
    """The texts of a file, the first `limit` of them."""
    return [record.text() for record in text_records(path, layout, limit)]


def read_pairs(
    path: Path, layout: Layout | None = None, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """The sources and the targets of a file, the first `limit` of them."""
    pairs = [record.pair() for record in read_records(path, layout)[:limit]]
    if not pairs:
        raise ValueError(f"{path}: there is no pair in this file")
    return [source for source, _ in pairs], [target for _, target in pairs]


def asked_texts(model: Any, args: argparse.Namespace) -> tuple[list[str] | None, list[str]]:
    """What `args.text` holds for this model: an encoder–decoder has sources, too."""
    if model.tokenizer is None:
        raise ValueError(f"{args.model} has no tokenizer, so it cannot read {args.text}")
    layout = layout_of_args(args)
    if model.is_encoder_decoder:
        return read_pairs(args.text, layout, args.limit)
    return None, read_texts(args.text, layout, args.limit)
