"""`unspool evaluate model`: how well a model predicts a text, and whether its confidence is deserved."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from math import log
from pathlib import Path

from unspool.cli.corpus import add_ray_options, corpus_of, pool_of, without_ray
from unspool.cli.diagnose.texts import add_text_options, asked_texts
from unspool.cli.models import load_speaker
from unspool.cli.output import counted, json_line, reserved, tell
from unspool.cli.parser import add_running_options, positive
from unspool.data.records import json_record

COLUMNS = ("text",)
SUMS = ("texts", "tokens", "nats", "bytes")
ASKED = ("model", "device", "weights", "engine", "context")


class CorpusReader:
    """A model that reads blocks of texts.

    `unspool evaluate model --ray`: the perplexity of a corpus that is read block by block by many processes.

    A part holds one line for its block: its texts, tokens, nats and bytes, and the perplexity of each text.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.context = args.context
        self.model = load_speaker(args)
        if self.model.is_encoder_decoder or self.model.tokenizer is None:
            raise TypeError(f"{args.model} reads no lines of text alone: measure it without --ray")

    def __call__(self, lines: Sequence[tuple[str, str]], first_samples: Sequence[int]) -> str:  # noqa: ARG002
        """What some lines add up to, as a line of JSON."""
        from unspool.evaluate.teacher_forcing import perplexity

        texts = [json_record(line, where).text() for where, line in lines]
        try:
            found = perplexity(self.model, texts, context=self.context)
        except ValueError:
            for (where, _), text in zip(lines, texts, strict=True):
                try:
                    perplexity(self.model, [text], context=self.context)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from error
            raise
        size = sum(len(text.encode()) for text in texts)
        sums = dict(zip(SUMS, (len(texts), found.tokens, found.nats, size), strict=True))
        return json_line({**sums, "by_text": found.by_text}) + "\n"


def read_corpus(args: argparse.Namespace) -> int:
    """Read every line of the corpus, and add up."""
    if args.figure or args.limit:
        raise ValueError("--ray measures the perplexity of the whole corpus: leave --figure and --limit out")
    from unspool.evaluate.teacher_forcing import Perplexity
    from unspool.integrations.ray.actor_pool import ray_package
    from unspool.integrations.ray.corpus import run_corpus

    ray_package()
    corpus = corpus_of(args, args.text, COLUMNS)
    asked = {key: getattr(args, key) for key in ASKED}
    run_corpus(
        corpus, partial(CorpusReader, args), asked, shown=partial(counted, shown=True), **pool_of(args)
    )
    sums = _added(corpus.folder)
    found = Perplexity(sums["nats"], int(sums["tokens"]), ())
    bits = found.nats / log(2) / sums["bytes"]
    if args.json:
        told = {"texts": int(sums["texts"]), "tokens": found.tokens, "perplexity": found.value}
        print(json_line({**told, "bits_per_byte": bits}))
    else:
        print(f"perplexity   {found.value:.3f}   of {found.tokens:,} tokens in {int(sums['texts']):,} texts")
        print(f"bits a byte  {bits:.4f}")
    tell(f"each text's perplexity is in {corpus.folder}")
    return 0


def _added(folder: Path) -> dict[str, float]:
    """The sums of all parts, added in their order, so that they do not depend on who was first."""
    sums = dict.fromkeys(SUMS, 0.0)
    for part in sorted(folder.glob("part-*.jsonl")):
        found = json.loads(part.read_text(encoding="utf-8"))
        sums = {name: total + found[name] for name, total in sums.items()}
    return sums


SUMMARY = "Measure a model on a text: perplexity and calibration."
EXAMPLES = """examples:
  unspool evaluate model smollm2 --text book.txt --document file
  unspool evaluate model bible --text corpus/ --ray --workers 8 --output perplexity/
  unspool evaluate model runs/dates --text pairs.tsv --json --figure reliability.svg

A run reads the columns and fields of a file as it did in training.
Bits a byte compare models of different tokenizers, perplexities do not. ECE is the distance between
confidence and accuracy of the most probable token; the figure is the reliability diagram.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool evaluate model` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_text_options(parser, required=True)
    parser.add_argument("--limit", type=positive, metavar="N", help="read the first N texts of the file only")
    parser.add_argument(
        "--context", type=positive, metavar="N", help="tokens read at once (default: 1024, if the model can)"
    )
    parser.add_argument("--bins", type=positive, default=15, metavar="N", help="of confidence (default: 15)")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="with --ray: where the work is kept, block by block"
    )
    add_ray_options(parser, "--text")


def run(args: argparse.Namespace) -> int:
    """Read, measure, tell."""
    if args.ray:
        return read_corpus(args)
    without_ray(args)
    if args.output is not None:
        raise ValueError("--output goes with --ray: give that, too")
    args.text.open("rb").close()  # what cannot be read must fail before the work
    from unspool.evaluate.confidence_calibration import token_calibration
    from unspool.evaluate.teacher_forcing import perplexity
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_reliability

    if args.figure:
        figure_path(args.figure)
    with reserved(args.figure):
        model = load_speaker(args)
        sources, texts = asked_texts(model, args)
        try:
            found = perplexity(model, texts, sources, context=args.context)
            sure = token_calibration(model, texts, sources, context=args.context, bins=args.bins)
        except ValueError as error:
            raise ValueError(f"{args.text}: {error}") from error
        if args.figure:
            draw_reliability(sure, args.figure)
    size = sum(len(text.encode()) for text in texts)
    bits = found.nats / log(2) / size
    if args.json:
        print(
            json_line(
                {
                    "texts": len(texts),
                    "tokens": found.tokens,
                    "perplexity": found.value,
                    "bits_per_byte": bits,
                    "by_text": found.by_text,
                    "calibration": asdict(sure),
                }
            )
        )
    else:
        print(f"perplexity   {found.value:.3f}   of {found.tokens:,} tokens in {len(texts)} texts")
        print(f"bits a byte  {bits:.4f}")
        print(f"accuracy     {sure.accuracy:.4f}   of the most probable token")
        print(f"confidence   {sure.confidence:.4f}   on average")
        print(f"ECE          {sure.ece:.4f}   in {args.bins} bins; the worst is off by {sure.worst:.3f}")
        print(f"  by chance  {sure.null.low:.4f} to {sure.null.high:.4f} if it were perfectly calibrated")
    if args.figure:
        tell(f"wrote {args.figure}")
    return 0
