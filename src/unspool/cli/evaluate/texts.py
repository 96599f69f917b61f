"""`unspool evaluate texts`: the outputs of systems, measured and compared."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.diagnose.texts import add_columns_option
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_model_options, natural, positive
from unspool.data.records import Layout
from unspool.evaluate.text_files import SystemOutputs, read_outputs, read_systems, shared_prompts

if TYPE_CHECKING:
    from unspool.evaluate.significance import Interval, PairedTest
    from unspool.evaluate.system_measures import SystemMeasures

SUMMARY = "Measure the outputs of one system or more, and compare them with the first."
EXAMPLES = """examples:
  unspool evaluate texts answers.jsonl
  unspool evaluate texts beam.txt greedy.txt --references right.txt --json
  unspool evaluate texts nucleus.jsonl greedy.jsonl --model smollm2 --human people.jsonl --figure table.svg

Outputs are JSON lines with "text" and perhaps "prompt", as `unspool generate --json` writes them, or one
output a line. Of a .tsv file, prompts are the first column, and outputs and references the second.
length and rep-4 (share of 4-grams said before), loops (texts that end in one), distinct-1
and -2, Zipf and self-BLEU need nothing else; BLEU, chrF, TER and the length ratio need --references;
perplexity a --model, fit, gain and similarity also prompts (how well texts go with them); MAUVE a --model
and --human, and at least 300 texts of each (all are cut to one length; the range is over clusterings).
distinct-n is that of all texts together, Zipf's slope that of the 5,000 most frequent tokens. Measures that
are sums over texts have 95 % bootstrap intervals; p is of approximate randomisation against the first
system.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool evaluate texts` takes."""
    parser.add_argument("outputs", nargs="+", metavar="[NAME=]PATH", help="the outputs of a system")
    parser.add_argument("--references", type=Path, metavar="PATH", help="the right outputs, one for each")
    parser.add_argument("--prompts", type=Path, metavar="PATH", help="what was answered, line by line")
    parser.add_argument(
        "--human", type=Path, metavar="PATH", help="texts of people, measured beside the others"
    )
    add_columns_option(parser)
    parser.add_argument(
        "--tokens",
        choices=("words", "model"),
        default="words",
        help="what diversity counts: words, or the tokens of the model (default: %(default)s)",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        default=1000,
        metavar="N",
        help="draws for intervals and p (default: 1000)",
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object for each system")
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Read everything, measure, tell."""
    layout = _layout(args)
    systems = read_systems(args.outputs, layout, warn=tell)
    references = read_outputs(args.references, layout=layout, warn=tell) if args.references else None
    human = read_outputs(args.human, "human", layout, warn=tell) if args.human else None
    _check(args, systems, references)
    prompts = [_prompts(it, args) for it in systems]
    if args.figure:
        from unspool.plots.canvas import figure_path

        figure_path(args.figure)
    with reserved(args.figure):
        model = load_speaker(args) if args.model is not None else None
        found = _measured(args, systems, prompts, references, human, model)
        intervals = [it.intervals(samples=args.samples, seed=args.seed) for it in found]
        tests = _tests(args, found[: len(systems)])
        if args.figure:
            _draw(found, intervals, args.figure)
    if args.json:
        for it, spread, test in zip(found, intervals, tests, strict=False):
            print(json_line(_record(it, spread, test)))
    else:
        _print(found, intervals, tests)
    for it in found:
        for note in it.notes:
            tell(f"{it.system}: {note}")
    if args.figure:
        tell(f"wrote {args.figure}")
    return 0


def _layout(args: argparse.Namespace) -> Layout:
    return Layout() if args.columns is None else Layout(columns=tuple(args.columns))


def _check(args: argparse.Namespace, systems: list[SystemOutputs], references: SystemOutputs | None) -> None:
    """What does not go together is told before any work."""
    if args.model is None and (args.human or args.tokens == "model"):
        raise ValueError("--human and --tokens model need a --model, whose features and tokens are used")
    for it in systems:
        if references is not None and len(it.texts) != len(references.texts):
            raise ValueError(
                f"{it.name} has {len(it.texts)} outputs, and {args.references} {len(references.texts)} "
                "references: give one for each output"
            )


def _prompts(system: SystemOutputs, args: argparse.Namespace) -> list[str] | None:
    if args.prompts is None and system.prompts is None:
        return None
    return shared_prompts([system], args.prompts, _layout(args))


def _measured(
    args: argparse.Namespace,
    systems: list[SystemOutputs],
    prompts: list[list[str] | None],
    references: SystemOutputs | None,
    human: SystemOutputs | None,
    model: Any,
) -> list[SystemMeasures]:
    from unspool.evaluate.mauve_curve import common_length
    from unspool.evaluate.system_measures import measure_system

    if model is not None and model.is_encoder_decoder and any(it is None for it in prompts):
        raise ValueError(
            f"{args.model} is an encoder–decoder, which says nothing of a text without its source: give "
            '--prompts, or outputs with "prompt"'
        )
    tokens = model.tokenizer.encode if args.tokens == "model" else str.split
    length = None
    if human is not None and not model.is_encoder_decoder:
        said = [[text for text in it.texts if text.strip()] for it in (human, *systems)]
        length = common_length(model, *(texts for texts in said if texts))
    found = [
        measure_system(
            it.name,
            it.texts,
            prompts=asked,
            references=None if references is None else references.texts,
            human=None if human is None else human.texts,
            model=model,
            tokens=tokens,
            mauve_length=length,
        )
        for it, asked in zip(systems, prompts, strict=True)
    ]
    if human is not None:
        judge = None if model.is_encoder_decoder else model
        found.append(measure_system("human", human.texts, prompts=human.prompts, model=judge, tokens=tokens))
    return found


def _tests(args: argparse.Namespace, found: list[SystemMeasures]) -> list[dict[str, PairedTest]]:
    """Of every system against the first; none where they have not as many outputs."""
    from unspool.evaluate.system_measures import paired_tests

    first, *others = found
    return [
        {},
        *(
            paired_tests(it, first, samples=args.samples, seed=args.seed) if it.texts == first.texts else {}
            for it in others
        ),
        {},
    ]


def _record(
    found: SystemMeasures, intervals: dict[str, Interval], tests: dict[str, PairedTest]
) -> dict[str, Any]:
    return {
        "system": found.system,
        "texts": found.texts,
        "empty": found.empty,
        "measures": dict(found.values),
        "intervals": {name: [it.low, it.high] for name, it in intervals.items()},
        "against_first": {name: asdict(it) for name, it in tests.items()},
        "signatures": dict(found.signatures),
        "notes": list(found.notes),
    }


def _print(
    found: list[SystemMeasures], intervals: list[dict[str, Interval]], tests: list[dict[str, PairedTest]]
) -> None:
    """A row for each measure: systems are few, measures many."""
    names = list(dict.fromkeys(name for it in found for name in it.values))
    rows = [["texts", *(f"{it.texts}" + (f" ({it.empty} empty)" if it.empty else "") for it in found)]]
    for name in names:
        cells = [
            _cell(it.values.get(name), spread.get(name), test.get(name))
            for it, spread, test in zip(found, intervals, tests, strict=False)
        ]
        rows.append([name, *cells])
    print_rows(["", *(it.system for it in found)], rows)
    for name, signature in found[0].signatures.items():
        print(f"{name}: {signature}")


def _cell(value: float | None, spread: Interval | None, test: PairedTest | None) -> str:
    if value is None:
        return "–"
    said = _number(value)
    if spread is not None:
        said += f"  {_number(spread.low)} … {_number(spread.high)}"
    return said if test is None else f"{said}  p {test.p:.3f}"


def _number(value: float) -> str:
    # + 0.0 makes an ordinary zero of the negative one.
    return f"{value:.1f}" if abs(value) >= 100 or not isfinite(value) else f"{value + 0.0:.3g}"


def _draw(found: list[SystemMeasures], intervals: list[dict[str, Interval]], path: Path) -> None:
    from unspool.evaluate.significance import Interval
    from unspool.plots.figures import draw_intervals

    names = list(dict.fromkeys(name for it in found for name in it.values))
    panels = {
        name: {
            it.system: spread.get(name) or Interval(it.values[name], it.values[name], it.values[name], 1.0)
            for it, spread in zip(found, intervals, strict=True)
            if name in it.values
        }
        for name in names
    }
    draw_intervals(panels, path)
