"""`unspool generate`: continue prompts, streamed to a terminal or written as text or JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool import config
from unspool.cli.corpus import add_ray_options, answer_corpus, without_ray
from unspool.cli.decoders import add_decoder_options, decoder_spec, parse_all
from unspool.cli.models import (
    add_expert_options,
    add_guidance_options,
    add_second_model_options,
    loading,
    named_models,
)
from unspool.cli.output import check_output, counted, opened, shown
from unspool.cli.parser import add_length_options, add_model_options, natural, positive
from unspool.cli.prompts import add_prompt_options, read_prompts
from unspool.cli.requests import AnsweredRequest, answer_line, answers, make_requests
from unspool.errors import check_surrogates

if TYPE_CHECKING:
    from unspool.decode.output import Piece

SUMMARY = "Continue a prompt, or a file of them."
EXAMPLES = """examples:
  unspool generate "Once upon a time" --temperature 0.8 --top-p 0.9 --seed 1
  unspool generate --chat "Why is the sky blue?" --greedy
  unspool generate "The best way to" --decoder "Sample(MinP(0.05), Temperature(1.5))" --n 3
  unspool generate --chat "Who wrote Faust? Answer in JSON." --json-schema person.json
  unspool generate --file prompts.jsonl --json --output answers.jsonl
  unspool generate --file corpus/ --ray --workers 8 --seed 1 --output answers/
  unspool generate "He said to them," --model bible --weak bible-weak --decoder "Beam(5)"
  unspool generate "He said to them," --model bible --draft bible-weak --greedy
  echo "In the beginning" | unspool generate --max-new-tokens 40

prompts.jsonl, where a line may have settings of its own and an id, which is given back:
  {"prompt": "Once upon a time", "seed": 3, "max_new_tokens": 40, "id": "tale"}
  {"messages": [{"role": "user", "content": "Why?"}], "decoder": "Greedy()", "stop": ["."], "n": 1}
  {"prompt": "Why?", "chat": true, "system": "Be brief.", "stop_loops": true}

peak memory on a CPU, one thread, short prompts:
  bible     1.6 M parameters                       0.39 GB
  smollm2   135 M parameters                       0.93 GB
  smollm2   135 M parameters, --weights int8       0.53 GB
  smollm2   135 M parameters, --weights stored  0.49 GB
About 0.38 GB of it are Python, torch and compiled code. Weights take 4 bytes a parameter in float32, 1.06 in
int8, and stored what they take in their file; --dtype bfloat16 takes 2 once it is loaded, 4 before.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool generate` takes."""
    add_prompt_options(parser)
    add_model_options(parser)
    add_second_model_options(parser)
    add_guidance_options(parser)
    add_expert_options(parser)
    add_decoder_options(parser)
    add_length_options(parser, new_tokens=config.MAX_NEW_TOKENS)
    parser.add_argument(
        "--n", type=positive, default=1, help="answers to each prompt, up to a million (default: 1)"
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text appears; may be given several times",
    )
    parser.add_argument(
        "--stop-id",
        action="append",
        type=natural,
        default=[],
        metavar="ID",
        help="end at this token, which is not shown; may be given several times",
    )
    parser.add_argument("--stop-loops", action="store_true", help="end a text that goes round in circles")
    parser.add_argument(
        "--stop-approximate-loops", action="store_true", help="end it also if it only nearly repeats itself"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="rows decoded side by side at most, prompts times answers or times the width of a beam; it "
        f"changes no text, only memory and speed (default: {config.MAX_BATCH_ROWS}, fewer for long texts)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a line: prompt, sample, text, tokens, logps, scores, total, finish, seed, "
        "decoder, model",
    )
    parser.add_argument(
        "--alternatives",
        type=natural,
        default=0,
        metavar="K",
        help='with --json: also "ranked", the K most probable tokens at every step, by the model itself and '
        "in what was drawn from",
    )
    parser.add_argument(
        "--output", type=Path, metavar="PATH", help="write here instead of to standard output"
    )
    add_ray_options(parser, "--file")


def run(args: argparse.Namespace) -> int:
    """Read and check everything, then generate."""
    if args.ray:
        return answer_corpus(args)
    without_ray(args)
    prompts = read_prompts(args, settings=True)
    if args.alternatives and not args.json:
        raise ValueError("--alternatives shows in JSON only: give --json, too")
    for stop in args.stop:
        check_surrogates(stop, "--stop")
    spec = decoder_spec(args)
    if args.output is not None and args.file is not None and args.output.resolve() == args.file.resolve():
        raise ValueError(f"--output {args.output} would overwrite the prompts; name another file")
    check_output(args.output)

    import unspool as us  # only now: the command line itself must not wait for torch

    models = named_models(args)
    searches = parse_all(spec, prompts, models.check)
    model, draft = models.load(loading(args))
    drafted = {spec: models.drafted(decoder, draft) for spec, decoder in searches.items()}
    requests = make_requests(prompts, model, spec, args)
    with opened(args.output) as file:
        first = requests[0]
        if len(requests) == first.options["n"] == 1 and not args.json and file.isatty():
            _stream(us.stream(model, first.text, drafted[first.spec], **first.options), file)
            return 0
        decoders = {spec: repr(decoder) for spec, decoder in searches.items()}
        with counted(len(requests), shown=args.file is not None) as done:
            for answer in answers(model, requests, drafted, args.batch_size, done):
                file.write(answer_line(answer, decoders, models) if args.json else _text(answer, file))
                file.flush()
    return 0


def _stream(pieces: Iterable[Piece], file: TextIO) -> None:
    try:
        for piece in pieces:
            file.write(shown(piece.text, file))
            file.flush()
    finally:
        file.write("\n")


def _text(answer: AnsweredRequest, file: TextIO) -> str:
    title = f"── prompt {answer.request.number + 1}, answer {answer.sample + 1} ──\n"
    return ("" if answer.alone else title) + shown(answer.output.text, file) + "\n"
