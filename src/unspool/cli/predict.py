"""`unspool predict`: the labels that a classifier gives to texts, or a tagger to their words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool.cli.models import load_labeller
from unspool.cli.output import check_output, json_line, opened, shown
from unspool.cli.parser import add_running_options, positive
from unspool.data.records import read_records, split_lines
from unspool.evaluate.text_files import layout_of_run

if TYPE_CHECKING:
    from unspool.models.labelling import Prediction

SUMMARY = "Label texts with a classifier, or their words with a tagger."
EXAMPLES = """examples:
  unspool predict --model runs/genres "Thanks, I will call you on Monday."
  unspool predict --model runs/genres --file texts.txt --top 3
  unspool predict --model runs/tags --file texts.jsonl --json --output tags.jsonl
  echo "The dogs bark" | unspool predict --model runs/tags

A classifier answers with a line for each text: label, probability, text. A tagger answers with a line for
each word: word, label, probability; a blank line stands between texts. Words are what white space separates.
"""

TOGETHER = 1024
"""Texts that are labelled before any of them is written."""


class _Text(NamedTuple):
    text: str
    where: str
    """What errors call it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool predict` takes."""
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help='texts to label; "-" or none reads standard input, one a line',
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help='texts, one a line, blank lines skipped; in a .jsonl file, {"text": "…"} a line; in a file with '
        "tabs, the column of the text that the run was trained on",
    )
    parser.add_argument(
        "--model", required=True, metavar="RUN", help="the run folder of a classifier or tagger"
    )
    add_running_options(parser)
    parser.add_argument(
        "--top",
        type=positive,
        metavar="N",
        help="the N most probable labels, each with its probability (default: 1; with --json, all)",
    )
    parser.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="texts read side by side (default: 32)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a text: text, label, p, probabilities; of a tagger: text, words (each so)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="write here instead of to standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Read and check everything, then label."""
    texts = read_texts(args)
    if args.output is not None and args.file is not None and args.output.resolve() == args.file.resolve():
        raise ValueError(f"--output {args.output} would overwrite the texts; name another file")
    check_output(args.output)
    model = load_labeller(args)
    for each in texts:
        try:
            model.read([each.text])
        except ValueError as error:
            raise ValueError(f"{each.where}: {str(error).replace('text 0', 'the text', 1)}") from error
    with opened(args.output) as file:
        for place, (text, found) in enumerate(_labelled(model, [each.text for each in texts], args)):
            if args.json:
                file.write(json_line(_record(text, found, args.top)) + "\n")
            else:
                if place > 0 and isinstance(found, list):
                    file.write("\n")
                for columns in _rows(text, found, args.top or 1):
                    file.write(shown("\t".join(columns), file) + "\n")
            file.flush()
    return 0


def read_texts(args: argparse.Namespace) -> list[_Text]:
    """Every text that the options name."""
    given = args.texts if args.texts != ["-"] else []
    if args.file is not None:
        if args.texts:
            raise ValueError("give TEXT or --file, not both")
        records = read_records(args.file, layout_of_run(Path(args.model)))
        found = [_Text(record.text(), record.where) for record in records]
        if not found:
            raise ValueError(f"{args.file}: there is no text in this file")
        return found
    if given:
        return [_Text(text, f"text {place}") for place, text in enumerate(given, start=1)]
    if not args.texts and sys.stdin.isatty():
        raise ValueError("there is no text: give one as TEXT, pipe some in, or name a file with --file")
    try:
        found = _split(sys.stdin.buffer.read().decode("utf-8-sig"), "standard input, line ")
    except UnicodeDecodeError as error:
        raise ValueError(f"standard input is not UTF-8: {error}") from None
    if not found:
        raise ValueError("standard input is empty; write a text a line, or give one as TEXT")
    return found


def _split(content: str, where: str) -> list[_Text]:
    lines = enumerate(split_lines(content), start=1)
    return [_Text(line, f"{where}{number}") for number, line in lines if line.strip()]


def _labelled(model: Any, texts: Sequence[str], args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Every text with what was found, in order, as it is done."""
    import unspool as us

    rest = iter(texts)
    while some := list(islice(rest, TOGETHER)):
        yield from zip(some, us.predict(model, some, batch_size=args.batch_size), strict=True)


def _rows(text: str, found: Prediction | list[Any], top: int) -> Iterator[tuple[str, ...]]:
    """The columns of every line of an answer."""
    if isinstance(found, list):
        for each in found:
            yield (each.word, *_pairs(each.probabilities, top))
    else:
        yield (*_pairs(found.probabilities, top), " ".join(text.split()))


def _pairs(probabilities: Mapping[str, float], top: int) -> Iterator[str]:
    for label, p in islice(probabilities.items(), top):
        yield from (label, f"{p:.3f}")


def _record(text: str, found: Any, top: int | None) -> dict[str, Any]:
    if isinstance(found, list):
        return {"text": text, "words": [{"word": each.word, **_said(each, top)} for each in found]}
    return {"text": text, **_said(found, top)}


def _said(each: Prediction, top: int | None) -> dict[str, Any]:
    probabilities = dict(islice(each.probabilities.items(), top))
    return {"label": each.label, "p": each.p, "probabilities": probabilities}
