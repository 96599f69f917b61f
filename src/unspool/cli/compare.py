"""`unspool compare`: the same prompts unspooled by several decoders, side by side."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from unspool.cli.decoders import add_several_decoders_option, name_decoders
from unspool.cli.models import chosen_model, loading, speaker
from unspool.cli.output import json_line, reserved, tell, tell_traceback, written_to
from unspool.cli.parser import add_length_options, add_model_options, seed_of
from unspool.cli.prompts import add_prompt_options, read_prompts, render_all
from unspool.errors import message_line, replace_control_characters
from unspool.evaluate.comparison import Answer, DecoderRow
from unspool.io import new_file

if TYPE_CHECKING:
    from rich.text import Text

    from unspool.decode.output import Output
    from unspool.interfaces import Decoder

# A comparison of decoders on a terminal: a table where there is room for one, else a paragraph for each.


COLUMNS = ("log p", "rep-4", "dist-1", "dist-2", "loop", "len", "tok/s")
ROOM = 90
"""Columns of the terminal from which on the texts have enough of them beside the numbers."""
PIPED = 100
"""Columns where there is no terminal."""


def print_table(rows: Sequence[DecoderRow], prompts: Sequence[str]) -> None:
    """Every decoder with its measures and its answer to the first prompt."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if not console.is_terminal and console.width < PIPED:
        console.width = PIPED
    many = f"{len(prompts)} prompts; the texts below answer the first: " if len(prompts) > 1 else ""
    console.print(Text(many + replace_control_characters(prompts[0]), style="italic"))
    if console.width >= ROOM:
        console.print(_table(rows))
        return
    for row in rows:
        measures = "  ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, cells(row), strict=True))
        console.print(_said(row), Text(measures, style="dim"), "", sep="\n", overflow="fold")


def _table(rows: Sequence[DecoderRow]) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_lines=False, pad_edge=False, expand=True)
    table.add_column("decoder and its text", ratio=1, overflow="fold")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(_said(row).append("\n"), *cells(row))
    return table


def _said(row: DecoderRow) -> Text:
    from rich.text import Text

    text = re.sub(r"\s*\n\s*", " ⏎ ", row.answers[0].text.strip())
    return Text.assemble(
        (replace_control_characters(row.decoder), "bold"), "\n", replace_control_characters(text)
    )


def cells(row: DecoderRow) -> tuple[str, ...]:
    """The measures of a decoder, in the order of COLUMNS."""
    shares = (f"{share:.2f}" for share in (row.mean_logp, row.rep_4, row.distinct_1, row.distinct_2))
    return (*shares, row.loop_words, f"{row.length:.0f}", f"{row.speed:.1f}")


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
and -2 different tokens and pairs of all texts together, for each token (corpus level); loop the period of the
loop that the text ends in (≈: an approximate loop, most of whose last words repeat).

A decoder that fails is named, the others go on, and the exit status is not 0. Where no decoder is given,
those of the selection that cannot work on the model are left out, and it is said why.
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
    "Sample(MinK(3.0))",
    "Sample(Mirostat(5.0, 0.1))",
    "Sample(MinP(0.05), AdaptiveP(0.5))",
    "Sample(DynamicTemperature(), MinP(0.05))",
    "Sample(QuadraticSmoothing(0.25))",
    "Sample(DRY(), MinP(0.05))",
    "Sample(MinP(0.05), XTC(0.1, 0.5))",
    "Sample(BasisAware(0.1))",
)

BROKEN, BAD_INPUT = 1, 2
"""Exit status where a decoder broke, and where one was refused."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool compare` takes."""
    add_prompt_options(parser)
    add_model_options(parser)
    add_several_decoders_option(parser)
    parser.add_argument("--decoders", type=Path, metavar="PATH", help="a TOML file of named decoders")
    add_length_options(parser, new_tokens=60)
    parser.add_argument("--json", action="store_true", help="one JSON object for each decoder and prompt")
    parser.add_argument("--html", type=Path, metavar="PATH", help="also write a report with plots: one file")


def run(args: argparse.Namespace) -> int:
    """Read and check everything, then let every decoder answer every prompt."""
    prompts = read_prompts(args)
    specs = name_decoders(args.decoder, args.decoders, DEFAULT_DECODERS)

    import unspool as us  # only now: the command line itself must not wait for torch

    decoders = {name: us.parse(spec) for name, spec in specs.items()}
    name = chosen_model(args.model)
    model = speaker(name, loading(args))
    options = {"max_new_tokens": args.max_new_tokens, "n": 1, "seed": seed_of(args), "stop": ()}
    texts = render_all(prompts, model, args, options)
    about = {"model": name, "most new tokens": args.max_new_tokens, "seed": options["seed"]}
    done = Comparison(chosen=bool(args.decoder or args.decoders), debug=args.debug, streams=args.json)
    with reserved(args.html):
        try:
            for row in done.go(decoders, lambda decoder: us.generate(model, list(texts), decoder, **options)):
                if args.json:
                    _print_json(row, texts, options["seed"])
                # A pipe is given the last page only.
                if args.html is not None and (args.html.is_file() or not args.html.exists()):
                    _write_report(args.html, done, texts, about)
        finally:  # an interrupted comparison shows what it has
            if done.rows and not args.json:
                print_table(done.rows, texts)
            if done.rows and args.html is not None:
                _write_report(args.html, done, texts, about)
                tell(f"wrote {args.html}")
    return done.status if done.rows else done.status or BAD_INPUT


@dataclass
class Comparison:
    """What decoders have said so far, and which of them could not."""

    chosen: bool
    """Whether somebody asked for these decoders: others may be left out, and nothing is wrong."""
    debug: bool = False
    """Whether the traceback of an error is shown."""
    streams: bool = False
    """Whether rows are printed as they come."""
    rows: list[DecoderRow] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """Decoder → why there is no row of it."""
    status: int = 0
    """Of the command: 2 where a decoder was refused, 1 where one broke."""

    def go(
        self, decoders: Mapping[str, Decoder], generate: Callable[[Decoder], Sequence[Output]]
    ) -> Iterator[DecoderRow]:
        """A row for each decoder, as soon as it is there. One that fails is named, and the next goes on."""
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        hidden = not console.is_terminal or (self.streams and sys.stdout.isatty())
        # Standard output is where rows go: a bar that took it over would swallow them.
        with Progress(
            console=console, transient=True, disable=hidden, redirect_stdout=False, redirect_stderr=False
        ) as progress:
            for name in progress.track(decoders, description="decoders"):
                began = perf_counter()
                try:
                    outputs = generate(decoders[name])
                except Exception as error:
                    said = message_line(self._fault(name, error))
                    console.print(f"unspool: {said}", markup=False, highlight=False, soft_wrap=True)
                    continue
                answers = tuple(Answer(out.text, out.tokens, out.logps, out.finish_reason) for out in outputs)
                row = DecoderRow(name, repr(decoders[name]), answers, perf_counter() - began)
                self.rows.append(row)
                yield row

    def _fault(self, name: str, error: Exception) -> str:
        """Note why a decoder failed; what to say of it."""
        if self.debug:
            tell_traceback()
        refused = isinstance(error, (ValueError, TypeError))
        self.faults[name] = str(error) if refused else f"{type(error).__name__}: {error}"
        if refused and not self.chosen:
            return f"{name} is left out: {error}"
        self.status = (self.status or BAD_INPUT) if refused else BROKEN
        return f"decoder {name}: {self.faults[name]}"


def _print_json(row: DecoderRow, texts: Sequence[str], seed: int) -> None:
    for prompt, answer in zip(texts, row.answers, strict=True):
        record = {
            "decoder": row.decoder,
            "spec": row.spec,
            "prompt": prompt,
            "text": answer.text,
            "tokens": answer.tokens,
            "logps": answer.logps,
            "finish_reason": answer.finish_reason,
            "seed": seed,
            **answer.measures(),
            "tokens_per_second": row.speed,
        }
        print(json_line(record), flush=True)


def _write_report(path: Path, done: Comparison, texts: Sequence[str], about: Mapping[str, object]) -> None:
    """The page of what there is, in one step: a kill leaves the last one."""
    from unspool.evaluate.report import html_report

    page = html_report(done.rows, texts, about, done.faults)
    # A link stays a link; a pipe or a device is written to, and no file may take its place.
    target = path.resolve()
    with (
        new_file(target) if target.is_file() else nullcontext(target) as fresh,
        written_to(fresh) as file,
    ):
        file.write(page)
