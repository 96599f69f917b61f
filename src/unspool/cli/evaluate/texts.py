"""`unspool evaluate texts`: measure the outputs of systems and compare them with the first."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import add_model_options, add_seed_option, command, number, option
from unspool.cli.texts import add_columns_option
from unspool.data.records import Layout
from unspool.evaluate.text_files import SystemOutputs, read_outputs, read_systems, shared_prompts

if TYPE_CHECKING:
    from unspool.evaluate.significance import Interval, PairedTest, SummedMeasure
    from unspool.evaluate.system_measures import SystemMeasures

EXAMPLES = """examples:
  unspool evaluate texts answers.jsonl
  unspool evaluate texts beam.txt greedy.txt --references right.txt --json
  unspool evaluate texts nucleus.jsonl greedy.jsonl --model smollm2 --human people.jsonl --figure table.svg
  unspool evaluate texts answers.jsonl --measure my_package:exclamations --trust-code

Outputs are JSON lines with "text" and optionally "prompt", as `unspool generate --json` writes
them, or plain lines. In a .tsv file, prompts are the first column, outputs and references the
second.

measures:
  always              length, rep-4 (share of repeated 4-grams), loops, distinct-1, distinct-2 (of all texts
                      together), Zipf (slope of the 5,000 most frequent tokens), self-BLEU
  with --references   BLEU, chrF, TER, length ratio
  with --model        perplexity; and if there are prompts, fit and similarity to them
  with --human        MAUVE; needs --model and at least 300 texts of each, which are cut to one length
  with --measure      a measure of your own: the mean of a function from a text (or from a text and its
                      reference) to a number; needs --trust-code

Intervals are 95 % bootstrap intervals over texts (of MAUVE: the range over clusterings). p is from
approximate randomisation against the first system.
"""


@command(
    EXAMPLES,
    option("outputs", nargs="+", metavar="[NAME=]FILE", help="the outputs of a system"),
    option("--references", type=Path, metavar="FILE", help="reference outputs, line by line"),
    option("--prompts", type=Path, metavar="FILE", help="the prompts, line by line"),
    option("--human", type=Path, metavar="FILE", help="human texts to compare with"),
    add_columns_option,
    option(
        "--tokens",
        choices=("words", "model"),
        default="words",
        help="tokens that diversity counts: words, or those of the model (default: %(default)s)",
    ),
    option(
        "--measure",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="also measure the mean of this function; may be repeated",
    ),
    number("--samples", 1000, "samples for intervals and p"),
    add_seed_option,
    add_model_options,
    figure=True,
    json="one JSON object per system",
)
def evaluate_texts(args: argparse.Namespace) -> Result:
    """Measure the outputs of systems, and compare them with the first."""
    layout = Layout() if args.columns is None else Layout(columns=tuple(args.columns))
    systems = read_systems(args.outputs, layout, warn=print_message)
    references = read_outputs(args.references, layout=layout, warn=print_message) if args.references else None
    human = read_outputs(args.human, "human", layout, warn=print_message) if args.human else None
    _check(args, systems, references)
    functions = {name: _own_measure(name, references) for name in args.measure}
    prompts = [
        None
        if args.prompts is None and system.prompts is None
        else shared_prompts([system], args.prompts, layout)
        for system in systems
    ]
    model = load_model(args) if args.model is not None else None
    measures = _measure(args, systems, prompts, references, human, model)
    for name, function in functions.items():
        for measured, system in zip(measures, systems, strict=False):
            measured.add(name.rpartition(":")[2], function(system.texts))
    intervals = [measured.intervals(samples=args.samples, seed=args.seed) for measured in measures]
    tests = _paired_tests(args, measures[: len(systems)])
    for measured in measures:
        for note in measured.notes:
            print_message(f"{measured.system}: {note}")
    rows = list(zip(measures, intervals, tests, strict=False))
    signatures = (f"{name}: {signature}" for name, signature in measures[0].signatures.items())
    return Result(
        (_record(*row) for row in rows), [_table(rows), *signatures], partial(_draw, measures, intervals)
    )


def _check(args: argparse.Namespace, systems: list[SystemOutputs], references: SystemOutputs | None) -> None:
    if args.model is None and (args.human or args.tokens == "model"):
        raise ValueError("--human and --tokens model need --model")
    for system in systems:
        if references is not None and len(system.texts) != len(references.texts):
            raise ValueError(
                f"{system.name} has {len(system.texts)} outputs but {args.references} has "
                f"{len(references.texts)} references: give one for each output"
            )


def _own_measure(name: str, references: SystemOutputs | None) -> Callable[[Sequence[str]], SummedMeasure]:
    from unspool.decode.arguments import function_of
    from unspool.evaluate.significance import mean_of
    from unspool.plugins import import_plugin, is_plugin, one_line

    if not is_plugin(name):
        raise ValueError(f"--measure {name!r}: write module:function, such as my_package:my_metric")
    function = import_plugin(name, "--measure")
    others = [] if references is None or function_of(function, 1) else [references.texts]
    if not function_of(function, 1 + len(others)):
        raise ValueError(f"--measure {name!r} is not a function of a text, or of a text and its --references")

    def measure(texts: Sequence[str]) -> SummedMeasure:
        try:
            return mean_of([float(function(*row)) for row in zip(texts, *others, strict=True)])
        except Exception as error:  # of the user's function
            raise ValueError(f"--measure {name!r} failed with {one_line(error)}") from error

    return measure


def _measure(
    args: argparse.Namespace,
    systems: list[SystemOutputs],
    prompts: list[list[str] | None],
    references: SystemOutputs | None,
    human: SystemOutputs | None,
    model: Any,
) -> list[SystemMeasures]:
    from unspool.evaluate.mauve_curve import common_length
    from unspool.evaluate.system_measures import measure_system

    if model is not None and model.is_encoder_decoder and any(lines is None for lines in prompts):
        raise ValueError(
            f'{args.model} is an encoder–decoder and needs sources: give --prompts, or outputs with "prompt"'
        )
    tokens = model.tokenizer.encode if args.tokens == "model" else str.split
    length = None
    if human is not None and not model.is_encoder_decoder:
        texts = [[text for text in outputs.texts if text.strip()] for outputs in (human, *systems)]
        length = common_length(model, *(kept for kept in texts if kept))
    measures = [
        measure_system(
            system.name,
            system.texts,
            prompts=system_prompts,
            references=None if references is None else references.texts,
            human=None if human is None else human.texts,
            model=model,
            tokens=tokens,
            mauve_length=length,
        )
        for system, system_prompts in zip(systems, prompts, strict=True)
    ]
    if human is not None:
        scorer = None if model.is_encoder_decoder else model
        measures.append(
            measure_system("human", human.texts, prompts=human.prompts, model=scorer, tokens=tokens)
        )
    return measures


def _paired_tests(args: argparse.Namespace, measures: list[SystemMeasures]) -> list[dict[str, PairedTest]]:
    """Tests of every system against the first; empty if the numbers of outputs differ."""
    from unspool.evaluate.system_measures import paired_tests

    first, *others = measures
    return [
        {},
        *(
            paired_tests(other, first, samples=args.samples, seed=args.seed)
            if other.texts == first.texts
            else {}
            for other in others
        ),
        {},
    ]


def _record(
    measures: SystemMeasures, intervals: dict[str, Interval], tests: dict[str, PairedTest]
) -> dict[str, Any]:
    return {
        "system": measures.system,
        "texts": measures.texts,
        "empty": measures.empty,
        "measures": dict(measures.values),
        "intervals": {name: [it.low, it.high] for name, it in intervals.items()},
        "against_first": {name: asdict(it) for name, it in tests.items()},
        "signatures": dict(measures.signatures),
        "notes": list(measures.notes),
    }


def _table(systems: Sequence[tuple[SystemMeasures, dict[str, Interval], dict[str, PairedTest]]]) -> Table:
    """A row per measure and a column per system."""
    counts = (f"{it.texts}" + (f" ({it.empty} empty)" if it.empty else "") for it, _, _ in systems)
    rows = [["texts", *counts]]
    for name in dict.fromkeys(name for it, _, _ in systems for name in it.values):
        cells = (
            _cell(it.values.get(name), interval.get(name), test.get(name)) for it, interval, test in systems
        )
        rows.append([name, *cells])
    return Table(["", *(it.system for it, _, _ in systems)], rows)


def _cell(value: float | None, interval: Interval | None, test: PairedTest | None) -> str:
    if value is None:
        return "–"
    cell = _number(value)
    if interval is not None:
        cell += f"  {_number(interval.low)} … {_number(interval.high)}"
    return cell if test is None else f"{cell}  p {test.p:.3f}"


def _number(value: float) -> str:
    # + 0.0 turns −0.0 into 0.0.
    return f"{value:.1f}" if abs(value) >= 100 or not isfinite(value) else f"{value + 0.0:.3g}"


def _draw(measures: list[SystemMeasures], intervals: list[dict[str, Interval]], path: Path) -> None:
    from unspool.evaluate.significance import Interval
    from unspool.plots.figures import draw_intervals

    names = list(dict.fromkeys(name for measured in measures for name in measured.values))
    panels = {
        name: {
            it.system: interval.get(name) or Interval(it.values[name], it.values[name], it.values[name], 1.0)
            for it, interval in zip(measures, intervals, strict=True)
            if name in it.values
        }
        for name in names
    }
    draw_intervals(panels, path)
