"""`unspool generate`: continue prompts; print the text as it is generated, or write lines or JSON lines.

`--ray` processes a corpus block by block in many processes. The output is that of one process: the part
files, one after the other, are the file that `generate --prompts … --json` writes. A repeated prompt is its
next sample, so the samples of the whole corpus are counted before blocks are distributed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from unspool import config
from unspool.cli.decoders import add_decoder_options, decoder_spec, parse_decoders
from unspool.cli.models import Models, add_combination_options, load_options, model_name, named_models
from unspool.cli.output import (
    check_output,
    json_line,
    open_output,
    print_message,
    progress_bar,
    terminal_text,
    write_pieces,
)
from unspool.cli.parser import (
    add_length_options,
    add_model_options,
    command,
    flag,
    natural,
    number,
    output_option,
    repeated,
    seed_of,
)
from unspool.cli.prompts import (
    SETTINGS,
    Prompt,
    add_prompt_options,
    is_stdin,
    prompt_of_line,
    read_prompts,
    render,
    split_prompt,
)
from unspool.errors import check_surrogates

if TYPE_CHECKING:
    from unspool.decode.output import Output
    from unspool.interfaces import Decoder, StepModel


MAX_BATCH_TOKENS = 32_768
"""Tokens of prompts and new text in one batch, if --batch-size is not given."""


@dataclass(frozen=True)
class Request:
    """A prompt with its decoder and options."""

    text: str
    """The string that the model reads."""
    number: int
    spec: str
    """The decoder as a string."""
    options: Mapping[str, Any]
    """Keyword arguments of `generate`."""
    id: Any = None


Answer = tuple[Request, "Output", int]
"""A generated text, and its index among the texts of its prompt."""


def make_requests(
    prompts: Sequence[Prompt], model: StepModel, spec: str, args: argparse.Namespace
) -> list[Request]:
    """A request for every prompt that is not blank; settings of a line override the options."""
    seed = seed_of(args)
    requests = []
    for index, prompt in enumerate(prompts):
        if prompt.is_blank:
            continue
        own = prompt.settings
        stop = own.get("stop", args.stop)
        on_loop = "stop" if own.get("stop_loops", args.stop_loops) else "ignore"
        if own.get("stop_approximate_loops", args.stop_approximate_loops):
            on_loop = "stop_approximate"
        options = {
            "max_new_tokens": own.get("max_new_tokens", args.max_new_tokens),
            "n": own.get("n", args.n),
            "seed": own.get("seed", seed),
            "stop": (stop,) if isinstance(stop, str) else tuple(stop),
            "stop_ids": tuple(own.get("stop_ids", args.stop_id)),
            "alternatives": args.alternatives,
            "on_loop": on_loop,
        }
        text = render(prompt, model, args, options)
        requests.append(Request(text, index, own.get("decoder", spec), options, prompt.id))
    return requests


def generate_answers(
    model: StepModel,
    requests: Sequence[Request],
    decoders: Mapping[str, Decoder],
    batch_size: int | None = None,
    done: Callable[[], None] = lambda: None,
    first_samples: Sequence[int] = (),
) -> Iterator[Answer]:
    """Yield the texts of all requests, in order, as they finish; `done` is called after each request.

    Neighbouring requests that differ only in text and seed are decoded together, at most `batch_size` rows at
    a time.
    A repeated prompt is the next sample of that prompt (`decode.rng`). `first_samples` overrides the sample
    indices, for requests that are a part of a larger corpus.
    """
    from unspool.decode.rng import SampleCounter
    from unspool.decode.run import Run

    counter, at = SampleCounter(), 0
    for _, group in groupby(requests, key=lambda request: (request.spec, {**request.options, "seed": None})):
        same = list(group)
        options = {**same[0].options, "seed": [request.options["seed"] for request in same]}
        run = Run(model, [request.text for request in same], decoders[same[0].spec], **options)
        job = run.job
        counted = counter.first_samples(zip(job.seeds, job.prompts, strict=True), job.n)
        given = tuple(first_samples[at : at + len(same)])
        at += len(same)
        longest = max(len(ids) + limit for ids, limit in zip(job.prompts, job.limits, strict=True))
        rows = batch_size or max(1, min(job.rows, MAX_BATCH_TOKENS // longest))
        run = run.with_job(rows=rows, first_samples=given or counted)
        answered = 0
        for hypothesis in run.finished():
            if hypothesis.request > answered:
                done()
                answered = hypothesis.request
            yield same[answered], run.output(hypothesis), hypothesis.sample
        done()


def answer_json(answer: Answer, decoders: Mapping[str, str], models: Models) -> str:
    """The JSON line of an answer; `decoders` maps the spec of a request to the repr of its decoder."""
    request, output, sample = answer
    record = {
        "prompt": request.text,
        "sample": sample,
        "text": output.text,
        "tokens": output.tokens,
        "logps": output.logps,
        "scores": output.scores,
        "total": output.total,
        "finish_reason": output.finish_reason,
        "seed": output.seed,
        "decoder": decoders[request.spec],
        **models.record(),
    }
    if output.ranked:
        record["ranked"] = [
            {"model": _tokens(step.model, step.texts), "drawn": _tokens(step.drawn, step.texts)}
            for step in output.ranked
        ]
    if request.id is not None:
        record = {"id": request.id, **record}
    return json_line(record) + "\n"


def _tokens(ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> list[dict[str, Any]]:
    return [{"token": token, "text": texts.get(token), "logp": logp} for token, logp in ranked]


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
    help_text = "use the Ray cluster at RAY_ADDRESS or on this machine; without one, start processes here"
    flag("--ray", help_text)(group)
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


def corpus_counter(args: argparse.Namespace) -> Callable[[Sequence[tuple[str, str]]], list[int]]:
    """Return a function that numbers the samples of repeated prompts across the whole corpus.

    It takes the next lines and returns the first sample index of each; 0 for an invalid line, which its
    worker reports.
    """
    from unspool.decode.rng import SampleCounter

    counter = SampleCounter()

    def first_sample(line: str) -> int:
        try:
            prompt = prompt_of_line(line, "")
        except ValueError:
            return 0
        own = prompt.settings
        content = prompt.conversation(chat=args.chat, system=args.system) or prompt.text
        key = json.dumps([own.get("seed", args.seed), content]).encode()
        return counter.first_sample(blake2b(key, digest_size=16).digest(), own.get("n", args.n))

    return lambda lines: [first_sample(line) for _, line in lines]


@contextmanager
def _progress(lines: int) -> Iterator[Callable[[int], None]]:
    with progress_bar(lines, "lines") as update:
        yield lambda count: update(advance=count)


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
        first_samples=corpus_counter(args),
        workers=args.workers,
        gpus=1 if args.device.startswith("cuda") else 0,
    )
    before = f", {result.skipped} of them already there" if result.skipped else ""
    print_message(f"{result.rows:,} prompts in {result.blocks:,} parts{before}: {args.output}")
    return 0


EXAMPLES = """examples:
  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1
  unspool generate --chat "Why is the sky blue?" --greedy --repetition-penalty 1.2
  unspool generate "The best way to" --decoder "Sample(MinP(0.05), Temperature(1.5))" --n 3
  unspool generate --chat "Who wrote Faust? Answer in JSON." --json-schema person.json
  unspool generate --prompts prompts.txt --output texts.txt
  unspool generate --prompts prompts.jsonl --json --output texts.jsonl
  unspool generate --prompts corpus/ --ray --workers 8 --seed 1 --output texts/
  unspool generate "He said to them," --model bible --weak bible-weak --decoder "Beam(5)"
  unspool generate "He said to them," --model bible --draft bible-weak --greedy
  echo "the 5th of May, 1921" | unspool generate --model dates

output:
One prompt is printed while it is generated. With --prompts or --lines each prompt gives one line,
and line breaks in a text become spaces (--json keeps them); with --n above 1 each text has a title
line.

prompts.jsonl, where a line may contain settings, and an id that is copied to the output:
  {"prompt": "Once upon a time", "seed": 3, "max_new_tokens": 40, "id": "tale"}
  {"messages": [{"role": "user", "content": "Why?"}], "decoder": "Greedy()", "stop": ["."], "n": 1}
  {"prompt": "Why?", "chat": true, "system": "Be brief.", "stop_loops": true}

peak memory on a CPU, one thread, short prompts:
  bible     1.6 M parameters                    0.39 GB
  smollm2   135 M parameters, --weights float32 0.93 GB
  smollm2   135 M parameters, --weights int8    0.53 GB
  smollm2   135 M parameters, --weights stored  0.49 GB
Python, torch and compiled code need about 0.38 GB of this. A weight needs 4 bytes in float32, 1.06
in int8, its size in the file with --weights stored, and 2 with --dtype bfloat16 (4 while loading).
"""


@command(
    EXAMPLES,
    add_prompt_options,
    add_model_options,
    add_combination_options,
    add_decoder_options,
    partial(add_length_options, new_tokens=config.MAX_NEW_TOKENS),
    number("--n", 1, "texts per prompt, up to a million"),
    repeated("--stop", "TEXT", "end before this text"),
    repeated("--stop-id", "ID", "end at this token, which is not printed", type=natural),
    flag("--stop-loops", "end a text that repeats itself in a loop"),
    flag("--stop-approximate-loops", "end a text also if it repeats itself approximately"),
    number(
        "--batch-size",
        None,
        "rows (prompts × texts × beam width) that are decoded together; changes memory and speed, never "
        f"the text (default: {config.MAX_BATCH_ROWS}, fewer for long texts)",
    ),
    number(
        "--alternatives",
        0,
        'with --json, add "ranked": the N most probable tokens of each step, of the model and of the '
        "distribution that was sampled from",
        minimum=0,
    ),
    output_option(),
    add_ray_options,
    json="one JSON object per text: prompt, sample, text, tokens, logps, scores, total (the score by which "
    "a search ranks texts), finish_reason, seed, decoder, model",
)
def generate(args: argparse.Namespace) -> int:
    """Continue a prompt, or many."""
    if args.ray:
        return generate_corpus(args)
    check_without_ray(args)
    prompts = read_prompts(args, settings=True, keep_blank=not args.json)
    if args.alternatives and not args.json:
        raise ValueError("--alternatives needs --json")
    for stop in args.stop:
        check_surrogates(stop, "--stop")
    spec = decoder_spec(args)
    check_output(args.output, args.prompts)

    import unspool as us  # here, because it imports torch: errors above are reported at once

    models = named_models(args)
    decoders = parse_decoders(spec, prompts, models.check)
    model, draft = models.load(load_options(args))
    if args.lines is None and is_stdin(args) and model.is_encoder_decoder:
        prompts = split_prompt(prompts[0])
    running = {spec: models.with_draft(decoder, draft) for spec, decoder in decoders.items()}
    requests = make_requests(prompts, model, spec, args)
    is_single = len(prompts) == requests[0].options["n"] == 1
    with open_output(args.output) as file:
        if is_single and not args.json and (not prompts[0].where or file.isatty()):
            first = requests[0]
            write_pieces(us.stream(model, first.text, running[first.spec], **first.options), file)
            return 0
        with progress_bar(len(requests), shown=args.prompts is not None) as update:
            done = partial(update, advance=1)
            answers = generate_answers(model, requests, running, args.batch_size, done)
            if args.json:
                names = {spec: repr(decoder) for spec, decoder in decoders.items()}
                for answer in answers:
                    file.write(answer_json(answer, names, models))
                    file.flush()
            elif all(request.options["n"] == 1 for request in requests):
                _write_lines(answers, prompts, file)
            else:
                _write_titled(answers, file)
    return 0


def _write_lines(answers: Iterable[Answer], prompts: Sequence[Prompt], file: TextIO) -> None:
    """Write one line per prompt; the line of a blank prompt is blank."""
    written = 0
    for request, output, _ in answers:
        line = re.sub(r"\s*[\n\r]\s*", " ", output.text.strip("\n\r"))
        file.write("\n" * (request.number - written) + terminal_text(line, file) + "\n")
        file.flush()
        written = request.number + 1
    file.write("\n" * (len(prompts) - written))


def _write_titled(answers: Iterable[Answer], file: TextIO) -> None:
    for request, output, sample in answers:
        title = f"── prompt {request.number + 1}, text {sample + 1} ──\n"
        file.write(title + terminal_text(output.text, file) + "\n")
        file.flush()
