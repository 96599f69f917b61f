"""`generate --ray`: process a corpus block by block in many processes.

The output is that of one process: the part files, one after the other, are the file that
`generate --prompts … --json` writes. A repeated prompt is its next sample, so the samples of the whole corpus
are counted before blocks are distributed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path

from unspool.cli.decoders import decoder_spec, parse_decoders
from unspool.cli.models import load_options, model_name, named_models
from unspool.cli.output import print_message, progress_bar
from unspool.cli.parser import number, seed_of
from unspool.cli.prompts import SETTINGS, prompt_of_line
from unspool.cli.requests import answer_json, generate_answers, make_requests
from unspool.errors import check_surrogates

OTHER_OPTIONS = {
    *("command", "run", "debug", "trust_code", "ray", "workers", "block_size", "output", "prompts"),
    *("lines", "json", "batch_size", "greedy", "transforms", "regex", "json_schema"),
}
"""Options that do not change the output, or that are part of the decoder's spec."""
COLUMNS = ("prompt", "messages", "id", *SETTINGS)


def add_ray_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "large corpora",
        "distributed with Ray (pip install 'unspool[ray]'): --prompts is a file of JSON lines or Parquet, or "
        "a folder of them, and may be larger than memory; --output is a folder. Repeat an interrupted "
        "command to resume it.",
    )
    group.add_argument(
        "--ray",
        action="store_true",
        help="use the Ray cluster at RAY_ADDRESS or on this machine; without one, start processes here",
    )
    help_text = "processes, each with its own copy of the model (default: the number of cores − 1)"
    number("--workers", None, help_text)(group)
    number("--block-size", None, "lines per part file (default: 256)")(group)


def check_without_ray(args: argparse.Namespace) -> None:
    for name in ("workers", "block_size"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} needs --ray")


class CorpusGenerator:
    """A worker of `generate --ray`: loads the models once, then generates the texts of blocks of lines."""

    def __init__(self, args: argparse.Namespace, spec: str) -> None:
        self.args = args
        self.spec = spec
        self.models = named_models(args)
        self.model, self.draft = self.models.load(load_options(args))

    def __call__(self, lines: Sequence[tuple[str, str]], first_samples: Sequence[int]) -> str:
        """The JSON lines of the answers to these lines."""
        prompts = [prompt_of_line(line, where) for where, line in lines]
        decoders = parse_decoders(self.spec, prompts, self.models.check)
        running = {spec: self.models.with_draft(decoder, self.draft) for spec, decoder in decoders.items()}
        names = {spec: repr(decoder) for spec, decoder in decoders.items()}
        requests = make_requests(prompts, self.model, self.spec, self.args)
        answers = generate_answers(
            self.model, requests, running, self.args.batch_size, first_samples=first_samples
        )
        return "".join(answer_json(answer, names, self.models) for answer in answers)


class CorpusCounter:
    """Numbers the samples of repeated prompts across the whole corpus."""

    def __init__(self, args: argparse.Namespace) -> None:
        from unspool.decode.rng import SampleCounter

        self.args, self.counter = args, SampleCounter()

    def __call__(self, lines: Sequence[tuple[str, str]]) -> list[int]:
        """The first sample index of each next line; 0 for an invalid line, which its worker reports."""
        return [self._first_sample(line) for _, line in lines]

    def _first_sample(self, line: str) -> int:
        try:
            prompt = prompt_of_line(line, "")
        except ValueError:
            return 0
        own, args = prompt.settings, self.args
        content = prompt.conversation(chat=args.chat, system=args.system) or prompt.text
        key = json.dumps([own.get("seed", args.seed), content]).encode()
        return self.counter.first_sample(blake2b(key, digest_size=16).digest(), own.get("n", args.n))


@contextmanager
def _progress(lines: int) -> Iterator[Callable[[int], None]]:
    with progress_bar(lines, "lines") as bar:
        yield bar.advance


def generate_corpus(args: argparse.Namespace) -> int:
    if args.prompts is None:
        raise ValueError("--ray needs --prompts: a file or a folder")
    if args.prompt is not None:
        raise ValueError("give PROMPT or --prompts, not both")
    if args.output is None:
        raise ValueError("--ray needs --output FOLDER")
    from unspool.decode.spec import parse
    from unspool.integrations.ray.corpus import LINES_PER_BLOCK, Corpus, ray_package, read_job, run_corpus
    from unspool.integrations.ray.corpus_blocks import corpus_files

    ray_package()
    corpus = Corpus(corpus_files(args.prompts), args.output, COLUMNS, args.block_size or LINES_PER_BLOCK)
    args.model = model_name(args.model)
    if args.seed is None:  # a resumed command continues with its first seed
        args.seed = read_job(args.output).get("seed", seed_of(args))
    for stop in args.stop:
        check_surrogates(stop, "--stop")
    spec = decoder_spec(args)
    named_models(args).check(parse(spec))
    settings = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in vars(args).items()
        if key not in OTHER_OPTIONS
    }
    result = run_corpus(
        corpus,
        partial(CorpusGenerator, args, spec),
        settings | {"decoder": spec},
        progress=_progress,
        first_samples=CorpusCounter(args),
        workers=args.workers,
        gpus=1 if args.device.startswith("cuda") else 0,
    )
    before = f", {result.skipped} of them already there" if result.skipped else ""
    print_message(f"{result.rows:,} prompts in {result.blocks:,} parts{before}: {args.output}")
    return 0
