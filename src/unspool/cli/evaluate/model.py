"""`unspool evaluate model`: perplexity, bits per byte and calibration of a model on a text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.corpus import add_ray_options, check_without_ray, corpus_progress, open_corpus, pool_options
from unspool.cli.models import load_model
from unspool.cli.output import Result, json_line, print_message
from unspool.cli.parser import add_model_argument, command, number, output_option
from unspool.cli.texts import add_reading_options, add_text_options, given_texts
from unspool.data.records import json_record

if TYPE_CHECKING:
    from unspool.evaluate.teacher_forcing import Perplexity

EXAMPLES = """examples:
  unspool evaluate model smollm2 --text book.txt --document file
  unspool evaluate model bible --text corpus/ --ray --workers 8 --output perplexity/
  unspool evaluate model runs/dates --text pairs.tsv --json --figure reliability.svg

A run folder reads the columns and fields of a file as in training. Bits per byte compare models
with different tokenizers; perplexities do not. ECE (expected calibration error) is the distance
between confidence and accuracy of the most probable token; the figure is the reliability diagram.
"""
COLUMNS = ("text",)
SUMS = ("texts", "tokens", "nats", "bytes")
CORPUS_OPTIONS = ("model", "device", "weights", "engine", "context")
"""Options that the result of --ray depends on."""


@command(
    EXAMPLES,
    add_model_argument,
    partial(add_text_options, required=True),
    add_reading_options,
    number("--bins", 15, "bins of confidence"),
    output_option("with --ray: folder of the part files", "FOLDER"),
    partial(add_ray_options, corpus="--text"),
    figure=True,
)
def evaluate_model(args: argparse.Namespace) -> Result:
    """Measure a model on a text: perplexity and calibration."""
    if args.ray:
        return _evaluate_corpus(args)
    check_without_ray(args)
    if args.output is not None:
        raise ValueError("--output needs --ray")
    from unspool.evaluate.confidence_calibration import token_calibration
    from unspool.evaluate.teacher_forcing import perplexity
    from unspool.plots.figures import draw_reliability

    model = load_model(args)
    sources, texts = given_texts(model, args)
    try:
        result = perplexity(model, texts, sources, context=args.context)
        calibration = token_calibration(model, texts, sources, context=args.context, bins=args.bins)
    except ValueError as error:
        raise ValueError(f"{args.text}: {error}") from error
    record, lines = _summary(result, len(texts), sum(len(text.encode()) for text in texts))
    record |= {"by_text": result.by_text, "calibration": asdict(calibration)}
    null = calibration.null
    lines += [
        f"accuracy       {calibration.accuracy:.4f}   of the most probable token",
        f"confidence     {calibration.confidence:.4f}   on average",
        f"ECE            {calibration.ece:.4f}   in {args.bins} bins; largest gap {calibration.worst:.3f}",
        f"  by chance    {null.low:.4f} to {null.high:.4f} for a perfectly calibrated model",
    ]
    return Result([record], lines, partial(draw_reliability, calibration))


def _summary(result: Perplexity, texts: int, size: float) -> tuple[dict[str, Any], list[str]]:
    """The perplexity, and the bits per byte of texts of `size` bytes, as a record and as lines."""
    bits = result.nats / log(2) / size
    return {"texts": texts, "tokens": result.tokens, "perplexity": result.value, "bits_per_byte": bits}, [
        f"perplexity     {result.value:.3f}   of {result.tokens:,} tokens in {texts:,} texts",
        f"bits per byte  {bits:.4f}",
    ]


# ---- --ray


class CorpusPerplexity:
    """A worker of `evaluate model --ray`: loads the model once, then measures blocks of texts.

    A part file is one JSON line: texts, tokens, nats and bytes of the block, and each text's perplexity.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.context = args.context
        self.model = load_model(args)
        if self.model.is_encoder_decoder or self.model.tokenizer is None:
            raise TypeError(f"--ray needs a language model with a tokenizer, which {args.model} is not")

    def __call__(self, lines: Sequence[tuple[str, str]], first_samples: Sequence[int]) -> str:  # noqa: ARG002
        """The JSON line of a block."""
        from unspool.evaluate.teacher_forcing import perplexity

        texts = [json_record(line, where).text() for where, line in lines]
        try:
            result = perplexity(self.model, texts, context=self.context)
        except ValueError:
            for (where, _), text in zip(lines, texts, strict=True):
                try:
                    perplexity(self.model, [text], context=self.context)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from error
            raise
        size = sum(len(text.encode()) for text in texts)
        sums = dict(zip(SUMS, (len(texts), result.tokens, result.nats, size), strict=True))
        return json_line({**sums, "by_text": result.by_text}) + "\n"


def _evaluate_corpus(args: argparse.Namespace) -> Result:
    if args.figure or args.limit:
        raise ValueError(
            "--ray measures only the perplexity of the whole corpus: leave --figure and --limit out"
        )
    from unspool.evaluate.teacher_forcing import Perplexity
    from unspool.integrations.ray.actor_pool import ray_package
    from unspool.integrations.ray.corpus import run_corpus

    ray_package()
    corpus = open_corpus(args, args.text, COLUMNS)
    settings = {key: getattr(args, key) for key in CORPUS_OPTIONS}
    run_corpus(
        corpus, partial(CorpusPerplexity, args), settings, progress=corpus_progress, **pool_options(args)
    )
    sums = _sum_parts(corpus.folder)
    print_message(f"the perplexity of each text is in {corpus.folder}")
    result = Perplexity(sums["nats"], int(sums["tokens"]), ())
    record, lines = _summary(result, int(sums["texts"]), sums["bytes"])
    return Result([record], lines)


def _sum_parts(folder: Path) -> dict[str, float]:
    """The sums over all part files, added in their order: the result does not depend on timing."""
    sums = dict.fromkeys(SUMS, 0.0)
    for part in sorted(folder.glob("part-*.jsonl")):
        record = json.loads(part.read_text(encoding="utf-8"))
        sums = {name: total + record[name] for name, total in sums.items()}
    return sums
