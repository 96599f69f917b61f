"""`unspool compare`: the same prompts with several decoders, as a table, JSON lines or an HTML report."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_generator, load_options, model_name
from unspool.cli.output import (
    Table,
    console,
    print_json,
    print_message,
    print_traceback,
    progress_bar,
    reserve_file,
)
from unspool.cli.parser import add_length_options, add_model_options, command, path_option, seed_of
from unspool.cli.prompts import add_prompt_options, read_prompts, render
from unspool.errors import replace_control_characters
from unspool.io import new_file

if TYPE_CHECKING:
    from rich.text import Text

    from unspool.evaluate.comparison import DecoderRow

EXAMPLES = """examples:
  unspool compare "The old lighthouse keeper climbed the stairs and"
  unspool compare "Once upon a time" --decoder "Greedy()" --decoder "Sample(TopP(0.9))" --seed 1
  unspool compare --prompts prompts.txt --html report.html

columns:
  log p             mean log-probability per token under the model
  rep-4             share of 4-grams that occurred before
  dist-1, dist-2    distinct tokens and bigrams of all texts, per token
  loop              period in tokens of the loop at the end of the text (≈ if it is approximate);
                    with several prompts "4/20 +2≈": 4 of 20 texts loop, 2 more approximately
  len               mean tokens per text
  tok/s             tokens per second, all prompts together, after a warm-up

If a decoder fails, the others continue and the exit status is not 0. Decoders of the default
selection that do not work with the model are left out with a message.
"""
DEFAULT_DECODERS = (
    "Greedy()",
    "Greedy(RepetitionPenalty(1.2))",
    "Greedy(NoRepeatNgram(3))",
    "Beam(4)",
    "DiverseBeam(4, 2, 0.5)",
    "BeamSample(4)",
    "StochasticBeam(4)",
    "ContrastiveSearch(4, 0.6)",
    "MBR(8)",
    "Sample()",
    "Sample(Temperature(0.7))",
    "Sample(TopK(50))",
    "Sample(TopP(0.9))",
    "Sample(MinP(0.05))",
    "Sample(Typical(0.95))",
    "Sample(Epsilon(6e-4))",
    "Sample(Eta(9e-4))",
    "Sample(TopNSigma(1.0))",
    "Sample(TailFree(0.95))",
    "Sample(TopA(0.2))",
    "Sample(TopH(0.4))",
    "Sample(PLess())",
    "Sample(MinK(3.0))",
    "Sample(Mirostat(5.0, 0.1))",
    "Sample(MinP(0.05), AdaptiveP(0.5))",
    "Sample(DynamicTemperature(), MinP(0.05))",
    "Sample(QuadraticSmoothing(0.25))",
    "Sample(DRY(), MinP(0.05))",
    "Sample(MinP(0.05), XTC(0.1, 0.5))",
    "Sample(BasisAware(0.1))",
)
"""One setting of every technique that needs only a model: that of its paper, or that of common tools."""

COLUMNS = ("log p", "rep-4", "dist-1", "dist-2", "loop", "len", "tok/s")
MIN_TABLE_WIDTH = 90
"""On narrower terminals, each decoder is a paragraph instead of a table row."""
FAILED, REFUSED = 1, 2
"""Exit status if a decoder crashed, and if one was refused."""


@command(
    EXAMPLES,
    add_prompt_options,
    add_model_options,
    add_decoders_option,
    partial(add_length_options, new_tokens=60),
    path_option("--html", "also write an HTML report with plots"),
    json="one JSON object per decoder and prompt",
)
def compare(args: argparse.Namespace) -> int:
    """Compare decoders on the same prompts."""
    prompts = read_prompts(args)

    import unspool as us  # here, because it imports torch
    from unspool.evaluate.comparison import DecoderRow, html_report

    decoders = {spec: us.parse(spec) for spec in args.decoder or DEFAULT_DECODERS}
    name = model_name(args.model)
    model = load_generator(name, load_options(args))
    options = {"max_new_tokens": args.max_new_tokens, "n": 1, "seed": seed_of(args), "stop": ()}
    texts = [render(prompt, model, args, options) for prompt in prompts]
    # The first texts of a model and a decoder compile kernels and prepare weights, which is not timed.
    warm_up = {**options, "max_new_tokens": 2}
    settings = {"model": name, "max new tokens": args.max_new_tokens, "seed": options["seed"]}
    is_default = not args.decoder
    rows: list[DecoderRow] = []
    faults: dict[str, str] = {}
    status = 0

    has_bar = not (args.json and sys.stdout.isatty())
    with reserve_file(args.html), progress_bar(len(decoders), "decoders", shown=has_bar) as update:
        try:
            for decoder_name, decoder in decoders.items():
                update(advance=1)
                try:
                    us.generate(model, texts[:2], decoder, **warm_up)
                    began = perf_counter()
                    outputs = us.generate(model, list(texts), decoder, **options)
                except Exception as error:
                    if args.debug:
                        print_traceback()
                    is_refused = isinstance(error, (ValueError, TypeError))
                    faults[decoder_name] = str(error) if is_refused else f"{type(error).__name__}: {error}"
                    if is_refused and is_default:
                        print_message(f"{decoder_name} is left out: {error}")
                    else:
                        status = (status or REFUSED) if is_refused else FAILED
                        print_message(f"decoder {decoder_name}: {faults[decoder_name]}")
                    continue
                rows.append(DecoderRow(decoder_name, repr(decoder), tuple(outputs), perf_counter() - began))
                if args.json:
                    _print_json(rows[-1], texts, options["seed"])
        finally:  # an interrupted comparison shows its results so far
            if rows and not args.json:
                print_comparison(rows, texts)
            if rows and args.html is not None:
                # A kill leaves the previous report. Links stay links; pipes are written to directly.
                target = args.html.resolve()
                with new_file(target) if target.is_file() else nullcontext(target) as file:
                    file.write_text(html_report(rows, texts, settings, faults), encoding="utf-8")
                print_message(f"wrote {args.html}")
    return status if rows else status or REFUSED


def print_comparison(rows: Sequence[DecoderRow], prompts: Sequence[str]) -> None:
    """Print every decoder with its measures and its text for the first prompt."""
    from rich.text import Text

    out = console()
    many = f"{len(prompts)} prompts; the texts below continue the first: " if len(prompts) > 1 else ""
    out.print(Text(many + replace_control_characters(prompts[0]), style="italic"))
    if out.width >= MIN_TABLE_WIDTH:
        cells: list[list[str | Text]] = [[_decoder_cell(row).append("\n"), *row.cells()] for row in rows]
        Table(["decoder and its text", *COLUMNS], cells).print()
        return
    for row in rows:
        line = "  ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, row.cells(), strict=True))
        out.print(_decoder_cell(row), Text(line, style="dim"), "", sep="\n", overflow="fold")


def _decoder_cell(row: DecoderRow) -> Text:
    from rich.text import Text

    text = re.sub(r"\s*\n\s*", " ⏎ ", row.outputs[0].text.strip())
    return Text.assemble(
        (replace_control_characters(row.decoder), "bold"), "\n", replace_control_characters(text)
    )


def _print_json(row: DecoderRow, texts: Sequence[str], seed: int) -> None:
    from unspool.evaluate.comparison import loop_period, loops_approximately, measures

    for prompt, output in zip(texts, row.outputs, strict=True):
        print_json(
            {
                "decoder": row.decoder,
                "spec": row.spec,
                "prompt": prompt,
                "text": output.text,
                "tokens": output.tokens,
                "logps": output.logps,
                "finish_reason": output.finish_reason,
                "seed": seed,
                **measures(output),
                "loop": loop_period(output),
                "approximate_loop": loops_approximately(output),
                "tokens_per_second": row.speed,
            }
        )
