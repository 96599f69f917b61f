"""`unspool compare`: the same prompts unspooled by several decoders, side by side."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from unspool.cli.decoders import name_decoders
from unspool.cli.output import json_line, printable
from unspool.cli.parser import add_length_options, add_model_options, seed_of
from unspool.cli.prompts import add_prompt_options, read_prompts, render_all
from unspool.cli.speaking import chosen_model, speaker
from unspool.evaluate.comparison import Answer, Row

if TYPE_CHECKING:
    from unspool.protocols import Search, StepModel

SUMMARY = "Unspool the same prompt by several decoders, side by side."
EXAMPLES = """examples:
  unspool compare "The old lighthouse keeper climbed the stairs and"
  unspool compare "Once upon a time" --decoder "Greedy()" --decoder "Sample(TopP(0.9))" --seed 1
  unspool compare --file prompts.txt --decoders decoders.toml --html report.html

decoders.toml:
  [decoders]
  greedy = "Greedy()"
  nucleus = "Sample(TopP(0.9))"

columns: log p is the model's own, of a token on average; rep-4 the share of 4-grams said before; distinct-1
and -2 different tokens and pairs for each token; loop the period of the loop that the text ends in.
"""

# One setting of every technique that needs nothing but a model: its paper's, or the one that tools ship.
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
    "Sample(Mirostat(5.0, 0.1))",
    "Sample(DRY(), MinP(0.05))",
    "Sample(MinP(0.05), XTC(0.1, 0.5))",
    "Sample(BasisAware(0.1))",
)

COLUMNS = ("log p", "rep-4", "dist-1", "dist-2", "loop", "len", "tok/s")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool compare` takes."""
    add_prompt_options(parser)
    add_model_options(parser)
    parser.add_argument(
        "--decoder",
        action="append",
        default=[],
        metavar="SPEC",
        help='a decoder, such as "Sample(TopP(0.9))"; may be given several times (default: a selection)',
    )
    parser.add_argument("--decoders", type=Path, metavar="PATH", help="a TOML file of named decoders")
    add_length_options(parser, new_tokens=60)
    parser.add_argument("--json", action="store_true", help="one JSON object for each decoder and prompt")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write a report with plots: one file")


def run(args: argparse.Namespace) -> int:
    """Read and check everything, then let every decoder answer every prompt."""
    prompts = read_prompts(args)
    specs = name_decoders(args.decoder, args.decoders, DEFAULT_DECODERS)

    import unspool as us  # only now: the command line itself must not wait for torch

    searches = {name: us.parse(spec) for name, spec in specs.items()}
    name = chosen_model(args.model)
    model = speaker(name, args.device)
    options = {"max_new_tokens": args.max_new_tokens, "n": 1, "seed": seed_of(args), "stop": ()}
    texts = render_all(prompts, model, args, options)
    if args.html is not None:
        args.html.touch()  # a path that cannot be written must fail before the work, not after it
    rows = list(_rows(model, texts, searches, options))
    if args.json:
        _print_json(rows, texts, options["seed"])
    else:
        _print_table(rows, texts)
    if args.html is not None:
        from unspool.evaluate.report import html_report

        about = {"model": name, "most new tokens": args.max_new_tokens, "seed": options["seed"]}
        args.html.write_text(html_report(rows, texts, about), encoding="utf-8")
        print(f"unspool: wrote {args.html}", file=sys.stderr)
    return 0


def _rows(
    model: StepModel, texts: Sequence[str], searches: dict[str, Search], options: dict[str, Any]
) -> Iterator[Row]:
    from rich.console import Console
    from rich.progress import track

    import unspool as us

    console = Console(stderr=True)
    for name in track(searches, "decoders", console=console, disable=not console.is_terminal, transient=True):
        began = perf_counter()
        try:
            outputs = us.generate(model, list(texts), searches[name], **options)
        except ValueError as error:
            raise ValueError(f"decoder {name}: {error}") from error
        seconds = perf_counter() - began
        answers = tuple(Answer(out.text, out.tokens, out.logps, out.finish) for out in outputs)
        yield Row(name, repr(searches[name]), answers, seconds)


def _print_json(rows: Sequence[Row], texts: Sequence[str], seed: int) -> None:
    for row in rows:
        for prompt, answer in zip(texts, row.answers, strict=True):
            record = {
                "decoder": row.decoder,
                "spec": row.spec,
                "prompt": prompt,
                "text": answer.text,
                "tokens": answer.tokens,
                "logps": answer.logps,
                "finish": answer.finish,
                "seed": seed,
                **answer.measures(),
                "tokens_per_second": row.speed,
            }
            print(json_line(record))


def _print_table(rows: Sequence[Row], texts: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal and console.width < 100:
        console.width = 100
    table = Table(box=SIMPLE_HEAD, show_lines=False, pad_edge=False, expand=True)
    table.add_column("decoder and its text", ratio=1, overflow="fold")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        text = re.sub(r"\s*\n\s*", " ⏎ ", row.answers[0].text.strip())
        said = Text.assemble((row.decoder, "bold"), "\n", printable(text), "\n")
        table.add_row(said, *_cells(row))
    many = f"{len(texts)} prompts; the texts below answer the first: " if len(texts) > 1 else ""
    console.print(Text(many + printable(texts[0]), style="italic"))
    console.print(table)


def _cells(row: Row) -> tuple[str, ...]:
    shares = (f"{share:.2f}" for share in (row.mean_logp, row.rep_4, row.distinct_1, row.distinct_2))
    return (*shares, row.loop_words, f"{row.length:.0f}", f"{row.speed:.1f}")
