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

from unspool.characters import check_characters
from unspool.cli.answer_lines import answer_line
from unspool.cli.decoders import decoder_spec, parse_all
from unspool.cli.line_settings import CHECKS
from unspool.cli.model_loading import chosen_model, loading
from unspool.cli.models import named_models
from unspool.cli.parser import seed_of
from unspool.cli.progress import counted
from unspool.cli.prompts import prompt_of_line
from unspool.cli.ray_options import corpus_of, pool_of
from unspool.cli.requests import answers, make_requests
from unspool.cli.streams import tell

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
        drafted = {spec: self.models.drafted(search, self.draft) for spec, search in searches.items()}
        decoders = {spec: repr(search) for spec, search in searches.items()}
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
    from unspool.adapters.ray.corpus_job import run_corpus
    from unspool.adapters.ray.part_folder import first_asked
    from unspool.adapters.ray.ray_package import ray_package
    from unspool.decode.spec import parse

    ray_package()
    corpus = corpus_of(args, args.file, COLUMNS)
    args.model = chosen_model(args.model)
    if args.seed is None:  # a command that is given again goes on with the seed that was drawn for it
        args.seed = first_asked(args.output).get("seed", seed_of(args))
    for stop in args.stop:
        check_characters(stop, "--stop")
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
