"""`unspool generate`: continue prompts, streamed to a terminal or written as text or JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from unspool.cli.decoders import add_decoder_options, decoder_spec
from unspool.cli.output import json_line, opened, shown
from unspool.cli.parser import add_length_options, add_model_options, positive, seed_of
from unspool.cli.prompts import add_prompt_options, read_prompts, render_all
from unspool.cli.speaking import load_speaker

if TYPE_CHECKING:
    from unspool.decode.generate import Output, Piece
    from unspool.protocols import Search, StepModel

SUMMARY = "Continue a prompt, or a file of them."
EXAMPLES = """examples:
  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1
  unspool generate --chat "Why is the sky blue?" --greedy
  unspool generate "The best way to" --decoder "Sample(MinP(0.05), Temperature(1.5))" --n 3
  unspool generate --file prompts.jsonl --json --output answers.jsonl
  echo "In the beginning" | unspool generate --max-new-tokens 40
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool generate` takes."""
    add_prompt_options(parser)
    add_model_options(parser)
    add_decoder_options(parser)
    add_length_options(parser, new_tokens=128)
    parser.add_argument("--n", type=positive, default=1, help="answers to each prompt (default: 1)")
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text appears; may be given several times",
    )
    parser.add_argument("--stop-loops", action="store_true", help="end a text that goes round in circles")
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=8,
        metavar="N",
        help="prompts decoded side by side (default: 8)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a line: prompt, sample, text, tokens, logps, finish, seed, decoder",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="write here instead of to standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Read and check everything, then generate."""
    prompts = read_prompts(args)
    spec = decoder_spec(args)
    if args.output is not None and args.file is not None and args.output.resolve() == args.file.resolve():
        raise ValueError(f"--output {args.output} would overwrite the prompts; name another file")

    import unspool as us  # only now: the command line itself must not wait for torch

    search = us.parse(spec)
    model = load_speaker(args)
    options = {
        "max_new_tokens": args.max_new_tokens,
        "n": args.n,
        "seed": seed_of(args),
        "stop": args.stop,
        "on_loop": "stop" if args.stop_loops else "ignore",
    }
    texts = render_all(prompts, model, args, options)
    with opened(args.output) as file:
        if len(texts) == 1 and args.n == 1 and not args.json and file.isatty():
            _stream(us.stream(model, texts[0], search, **options), file)
            return 0
        write = partial(_write_json, decoder=repr(search)) if args.json else _write_text
        for answer in _answers(model, texts, search, options, args):
            write(answer, file)
            file.flush()
    return 0


class _Answer(NamedTuple):
    prompt: str
    output: Output
    number: int
    """Which prompt."""
    sample: int
    """Which answer to it."""
    alone: bool
    """Whether there is no other."""


def _stream(pieces: Iterable[Piece], file: TextIO) -> None:
    for piece in pieces:
        file.write(shown(piece.text, file))
        file.flush()
    file.write("\n")


def _answers(
    model: StepModel, texts: Sequence[str], search: Search, options: dict[str, Any], args: argparse.Namespace
) -> Iterator[_Answer]:
    """Every answer to every prompt, in order, as batches are done."""
    import unspool as us

    alone = len(texts) * args.n == 1
    for first in _progress(range(0, len(texts), args.batch_size), len(texts), bar=args.file is not None):
        batch = texts[first : first + args.batch_size]
        for place, found in enumerate(us.generate(model, batch, search, **options)):
            for sample, output in enumerate(found if args.n > 1 else [found]):
                yield _Answer(batch[place], output, first + place, sample, alone)


def _progress(firsts: range, total: int, *, bar: bool) -> Iterator[int]:
    """The same numbers, with a bar and an estimate on standard error."""
    if not bar or not sys.stderr.isatty():
        yield from firsts
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        for first in firsts:
            yield first
            progress.update(task, completed=min(first + firsts.step, total))


def _write_text(answer: _Answer, file: TextIO) -> None:
    if not answer.alone:
        file.write(f"── prompt {answer.number + 1}, answer {answer.sample + 1} ──\n")
    file.write(shown(answer.output.text, file) + "\n")


def _write_json(answer: _Answer, file: TextIO, *, decoder: str) -> None:
    output = answer.output
    record = {
        "prompt": answer.prompt,
        "sample": answer.sample,
        "text": output.text,
        "tokens": output.tokens,
        "logps": output.logps,
        "finish": output.finish,
        "seed": output.seed,
        "decoder": decoder,
    }
    file.write(json_line(record) + "\n")
