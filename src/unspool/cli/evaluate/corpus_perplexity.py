"""`unspool evaluate model --ray`: the perplexity of a corpus that is read block by block by many processes.

A part holds one line for its block: its texts, tokens, nats and bytes, and the perplexity of each text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from math import log
from pathlib import Path

from unspool.cli.model_loading import load_speaker
from unspool.cli.output import json_line
from unspool.cli.progress import counted
from unspool.cli.ray_options import corpus_of, pool_of
from unspool.cli.streams import tell
from unspool.files.records import json_record

COLUMNS = ("text",)
SUMS = ("texts", "tokens", "nats", "bytes")
ASKED = ("model", "device", "weights", "engine", "context")


class CorpusReader:
    """A model that reads blocks of texts."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.context = args.context
        self.model = load_speaker(args)
        if self.model.answers or self.model.text is None:
            raise TypeError(f"{args.model} reads no lines of text alone: measure it without --ray")

    def __call__(self, lines: Sequence[tuple[str, str]], first_samples: Sequence[int]) -> str:  # noqa: ARG002
        """What some lines add up to, as a line of JSON."""
        from unspool.evaluate.text_perplexity import perplexity

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
    from unspool.adapters.ray.corpus_job import run_corpus
    from unspool.adapters.ray.ray_package import ray_package
    from unspool.evaluate.text_perplexity import Perplexity

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
