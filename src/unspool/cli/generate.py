"""`unspool generate`: continue prompts; print the text as it is generated, or write lines or JSON lines."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TextIO

from unspool import config
from unspool.cli.corpus import add_ray_options, check_without_ray, generate_corpus
from unspool.cli.decoders import add_decoder_options, decoder_spec, parse_decoders
from unspool.cli.models import add_combination_options, load_options, named_models
from unspool.cli.output import check_output, open_output, progress_bar, terminal_text, write_pieces
from unspool.cli.parser import (
    add_length_options,
    add_model_options,
    command,
    natural,
    number,
    option,
    output_option,
)
from unspool.cli.prompts import Prompt, add_prompt_options, is_stdin, read_prompts, split_prompt
from unspool.cli.requests import Answer, answer_json, generate_answers, make_requests
from unspool.errors import check_surrogates

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
  smollm2   135 M parameters                    0.93 GB
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
    option(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    ),
    option(
        "--stop-id",
        action="append",
        type=natural,
        default=[],
        metavar="ID",
        help="end at this token, which is not printed; may be repeated",
    ),
    option("--stop-loops", action="store_true", help="end a text that repeats itself in a loop"),
    option(
        "--stop-approximate-loops",
        action="store_true",
        help="end a text also if it repeats itself approximately",
    ),
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
        with progress_bar(len(requests), shown=args.prompts is not None) as bar:
            answers = generate_answers(model, requests, running, args.batch_size, bar.advance)
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
    for answer in answers:
        line = re.sub(r"\s*[\n\r]\s*", " ", answer.output.text.strip("\n\r"))
        file.write("\n" * (answer.request.number - written) + terminal_text(line, file) + "\n")
        file.flush()
        written = answer.request.number + 1
    file.write("\n" * (len(prompts) - written))


def _write_titled(answers: Iterable[Answer], file: TextIO) -> None:
    for answer in answers:
        title = f"── prompt {answer.request.number + 1}, text {answer.sample + 1} ──\n"
        file.write(title + terminal_text(answer.output.text, file) + "\n")
        file.flush()
