"""`unspool predict`: label texts with a classifier, or their words with a tagger."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load_labeller
from unspool.cli.output import check_output, json_line, open_output, terminal_text
from unspool.cli.parser import add_running_options, command, number, option, output_option, path_option
from unspool.cli.prompts import read_stdin
from unspool.data.records import read_records, split_lines
from unspool.evaluate.text_files import layout_of_run

if TYPE_CHECKING:
    from unspool.models.labelling import Prediction

EXAMPLES = """examples:
  unspool predict --model runs/genres "Thanks, I will call you on Monday."
  unspool predict --model runs/genres --text texts.txt --top 3
  unspool predict --model runs/tags --text texts.jsonl --json --output tags.jsonl
  echo "The dogs bark" | unspool predict --model runs/tags

A classifier prints a line per text: label, probability, text. A tagger prints a line per word
(separated by white space): word, label, probability; a blank line separates texts.
"""
CHUNK = 1024
"""Texts that are labelled before the first of them is written."""


@command(
    EXAMPLES,
    option(
        "texts",
        nargs="*",
        metavar="TEXT",
        help='texts to label; the lines of standard input if it is "-" or missing',
    ),
    path_option(
        "--text",
        'texts, one per line; in a .jsonl file {"text": "…"} per line; in a file with columns, the '
        "column that the run was trained on",
    ),
    option("--model", required=True, metavar="NAME", help="the run folder of a classifier or tagger"),
    add_running_options,
    number("--top", None, "print the N most probable labels (default: 1; with --json all)"),
    output_option(),
    json="one JSON object per text: text, label, p, probabilities; for a tagger: text, words (with the same)",
)
def predict(args: argparse.Namespace) -> int:
    """Label texts with a classifier, or their words with a tagger."""
    texts = read_texts(args)
    check_output(args.output, args.text)
    model = load_labeller(args)
    for text, where in texts:
        try:
            model.read([text])
        except ValueError as error:
            raise ValueError(f"{where}: {str(error).replace('text 0', 'the text', 1)}") from error
    with open_output(args.output) as file:
        predictions = _predict(model, [text for text, _ in texts])
        for index, (text, prediction) in enumerate(predictions):
            if args.json:
                file.write(json_line(_record(text, prediction, args.top)) + "\n")
            else:
                if index > 0 and isinstance(prediction, list):
                    file.write("\n")
                for columns in _rows(text, prediction, args.top or 1):
                    file.write(terminal_text("\t".join(columns), file) + "\n")
            file.flush()
    return 0


def read_texts(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The texts of the command line, of --text, or of standard input, each with its origin."""
    if args.text is not None:
        if args.texts:
            raise ValueError("give TEXT or --text FILE, not both")
        records = read_records(args.text, layout_of_run(Path(args.model)))
        texts = [(record.text(), record.where) for record in records]
        if not texts:
            raise ValueError(f"{args.text}: the file does not contain a text")
        return texts
    if args.texts and args.texts != ["-"]:
        return [(text, f"text {number}") for number, text in enumerate(args.texts, start=1)]
    if not args.texts and sys.stdin.isatty():
        raise ValueError("no text: give TEXT or --text FILE, or pipe lines into the command")
    lines = enumerate(split_lines(read_stdin()), start=1)
    texts = [(line, f"standard input, line {number}") for number, line in lines if line.strip()]
    if not texts:
        raise ValueError("standard input is empty: pipe lines into the command, or give TEXT")
    return texts


def _predict(model: Any, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    import unspool as us

    rest = iter(texts)
    while chunk := list(islice(rest, CHUNK)):
        yield from zip(chunk, us.predict(model, chunk), strict=True)


def _rows(text: str, prediction: Prediction | list[Any], top: int) -> Iterator[tuple[str, ...]]:
    """The columns of every output line of a text."""
    if isinstance(prediction, list):
        for word in prediction:
            yield (word.word, *_label_columns(word.probabilities, top))
    else:
        yield (*_label_columns(prediction.probabilities, top), " ".join(text.split()))


def _label_columns(probabilities: Mapping[str, float], top: int) -> Iterator[str]:
    for label, p in islice(probabilities.items(), top):
        yield from (label, f"{p:.3f}")


def _record(text: str, prediction: Any, top: int | None) -> dict[str, Any]:
    if isinstance(prediction, list):
        return {
            "text": text,
            "words": [{"word": word.word, **_label_record(word, top)} for word in prediction],
        }
    return {"text": text, **_label_record(prediction, top)}


def _label_record(prediction: Prediction, top: int | None) -> dict[str, Any]:
    probabilities = dict(islice(prediction.probabilities.items(), top))
    return {"label": prediction.label, "p": prediction.p, "probabilities": probabilities}
