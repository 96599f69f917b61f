"""`unspool generate --ray`: a corpus of prompts, answered block by block by many processes.

Each line is answered as `unspool generate --file … --json` answers it: the parts, one after the other, are
the file that one process writes. A prompt that comes again is its next sample, so the command counts the
prompts of the whole corpus before it hands out blocks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unspool.cli.decoders import decoder_spec, parse_all
from unspool.cli.models import chosen_model, loading, named_models
from unspool.cli.output import counted, tell
from unspool.cli.parser import positive, seed_of
from unspool.cli.prompts import CHECKS, prompt_of_line
from unspool.cli.requests import answer_line, answers, make_requests
from unspool.errors import check_surrogates

# What --ray takes with it: the size of the pool and of a block, and where the parts go.


def add_ray_options(parser: argparse.ArgumentParser, corpus: str) -> None:
    """For a verb whose corpus is given by the option `corpus`."""
    group = parser.add_argument_group(
        "a corpus, on one machine or many",
        f"through Ray (pip install 'unspool[ray]'): {corpus} is then a file of JSON lines or Parquet, or a "
        "folder of them, and may be larger than memory; --output names a folder. A command that was ended is "
        "given again, and goes on where it was.",
    )
    group.add_argument(
        "--ray",
        action="store_true",
        help="share the work among processes: of the cluster that RAY_ADDRESS names or that runs on this "
        "machine, else of this machine alone",
    )
    group.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="how many, each with the model in its memory (default: one a processor, but one)",
    )
    group.add_argument(
        "--block",
        type=positive,
        metavar="N",
        help="lines that are done and kept together (default: 256)",
    )


def without_ray(args: argparse.Namespace) -> None:
    """Refuse what means nothing without --ray."""
    for name in ("workers", "block"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} goes with --ray: give that, too")


def corpus_of(args: argparse.Namespace, path: Path, columns: tuple[str, ...]) -> Any:
    """The corpus at `path`, and the folder that --output names."""
    from unspool.integrations.ray.corpus import LINES_PER_BLOCK as ROWS, Corpus
    from unspool.integrations.ray.corpus_blocks import corpus_files

    if args.output is None:
        raise ValueError("--ray keeps its work in a folder: name one with --output FOLDER")
    return Corpus(corpus_files(path), args.output, columns, args.block or ROWS)


def pool_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the pool of workers is told."""
    return {"workers": args.workers, "gpus": 1 if args.device.startswith("cuda") else 0}


NOT_ASKED = frozenset(
    {"verb", "debug", "ray", "workers", "block", "output", "file", "json", "batch_size"}
    | {"greedy", "transforms", "regex", "json_schema"}
)
"""Options that no answer depends on, or that the decoder's specification holds."""
COLUMNS = ("prompt", "messages", "id", *CHECKS)


class CorpusSpeaker:
    """A model that answers blocks of lines."""

    def __init__(self, args: argparse.Namespace, spec: str) -> None:
        self.args = args
        self.spec = spec
        self.models = named_models(args)
        self.model, self.draft = self.models.load(loading(args))

    def __call__(self, lines: Sequence[tuple[str, str]], first_samples: Sequence[int]) -> str:
        """The answers to some lines, each a line of JSON."""
        prompts = [prompt_of_line(line, where) for where, line in lines]
        searches = parse_all(self.spec, prompts, self.models.check)
        drafted = {spec: self.models.drafted(decoder, self.draft) for spec, decoder in searches.items()}
        decoders = {spec: repr(decoder) for spec, decoder in searches.items()}
        requests = make_requests(prompts, self.model, self.spec, self.args)
        found = answers(self.model, requests, drafted, self.args.batch_size, first_samples=first_samples)
        return "".join(answer_line(answer, decoders, self.models) for answer in found)


class CorpusCounter:
    """The sample numbers of a corpus's lines: how many texts of the same prompt and seed come before each."""

    def __init__(self, args: argparse.Namespace) -> None:
        from unspool.decode.rng import SampleCounter

        self.args, self.counter = args, SampleCounter()

    def __call__(self, lines: Sequence[tuple[str, str]]) -> list[int]:
        """Of the next lines; a line that cannot be read counts as 0, and whoever answers it says why."""
        return [self._first_sample(line) for _, line in lines]

    def _first_sample(self, line: str) -> int:
        try:
            prompt = prompt_of_line(line, "")
        except ValueError:
            return 0
        said, args = prompt.settings, self.args
        asked = prompt.conversation(chat=args.chat, system=args.system) or prompt.text
        key = json.dumps([said.get("seed", args.seed), asked]).encode()
        return self.counter.first_sample(blake2b(key, digest_size=16).digest(), said.get("n", args.n))


def answer_corpus(args: argparse.Namespace) -> int:
    """Check what can be checked here, then answer every line of the corpus."""
    if args.file is None:
        raise ValueError("--ray answers a corpus: name it with --file, not as PROMPT or on standard input")
    if args.prompt is not None:
        raise ValueError("give a PROMPT or --file, not both")
    from unspool.decode.spec import parse
    from unspool.integrations.ray.actor_pool import ray_package
    from unspool.integrations.ray.corpus import read_job as first_asked, run_corpus

    ray_package()
    corpus = corpus_of(args, args.file, COLUMNS)
    args.model = chosen_model(args.model)
    if args.seed is None:  # a command that is given again goes on with the seed that was drawn for it
        args.seed = first_asked(args.output).get("seed", seed_of(args))
    for stop in args.stop:
        check_surrogates(stop, "--stop")
    spec = decoder_spec(args)
    named_models(args).check(parse(spec))
    asked = {key: _plain(value) for key, value in vars(args).items() if key not in NOT_ASKED}
    make = partial(CorpusSpeaker, args, spec)
    found = run_corpus(
        corpus,
        make,
        asked | {"decoder": spec},
        shown=partial(counted, shown=True),
        first_samples=CorpusCounter(args),
        **pool_of(args),
    )
    before = f", {found.kept} of them there before" if found.kept else ""
    tell(f"{found.rows:,} prompts in {found.blocks:,} parts{before}: {args.output}")
    return 0


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
