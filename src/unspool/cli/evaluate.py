"""`unspool evaluate texts | model | truth`: measure outputs of systems, a model, or decoders."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import (
    CommandGroup,
    add_model_argument,
    add_model_options,
    add_seed_option,
    command,
    number,
    option,
    path_option,
    repeated,
)
from unspool.cli.texts import add_columns_option, add_reading_options, add_text_options, given_texts
from unspool.data.records import Layout
from unspool.evaluate.text_files import SystemOutputs, read_outputs, read_systems, shared_prompts

if TYPE_CHECKING:
    from unspool.evaluate.significance import Interval, PairedTest, SummedMeasure
    from unspool.evaluate.system_measures import SystemMeasures


TEXTS_EXAMPLES = """examples:
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
    TEXTS_EXAMPLES,
    option("outputs", nargs="+", metavar="[NAME=]FILE", help="the outputs of a system"),
    path_option("--references", "reference outputs, line by line"),
    path_option("--prompts", "the prompts, line by line"),
    path_option("--human", "human texts to compare with"),
    add_columns_option,
    option(
        "--tokens",
        choices=("words", "model"),
        default="words",
        help="tokens that diversity counts: words, or those of the model (default: %(default)s)",
    ),
    repeated("--measure", "MODULE:FUNCTION", "also measure the mean of this function"),
    number("--samples", 1000, "samples for intervals and p"),
    add_seed_option,
    add_model_options,
    figure=True,
    json="one JSON object per system",
)
def evaluate_texts(args: argparse.Namespace) -> Result:
    """Measure the outputs of systems, and compare them with the first."""
    from unspool.evaluate.system_measures import paired_tests

    layout = Layout() if args.columns is None else Layout(columns=tuple(args.columns))
    systems = read_systems(args.outputs, layout)
    references = read_outputs(args.references, layout=layout) if args.references else None
    human = read_outputs(args.human, "human", layout) if args.human else None
    if args.model is None and (human or args.tokens == "model"):
        raise ValueError("--human and --tokens model need --model")
    for system in systems:
        if references is not None and len(system.texts) != len(references.texts):
            raise ValueError(
                f"{system.name} has {len(system.texts)} outputs but {args.references} has "
                f"{len(references.texts)} references: give one for each output"
            )
    functions = {name: _own_measure(name, references) for name in args.measure}
    prompts = [
        None
        if args.prompts is None and system.prompts is None
        else shared_prompts([system], args.prompts, layout)
        for system in systems
    ]
    model = load_model(args) if args.model is not None else None
    measures = _measure_systems(args, systems, prompts, references, human, model)
    for name, function in functions.items():
        for measured, system in zip(measures, systems, strict=False):
            measured.add(name.rpartition(":")[2], function(system.texts))
    intervals = [measured.intervals(samples=args.samples, seed=args.seed) for measured in measures]
    tests: list[dict[str, PairedTest]] = [
        # Without the first system itself, and the human texts.
        paired_tests(measured, measures[0], samples=args.samples, seed=args.seed)
        if 0 < at < len(systems) and measured.texts == measures[0].texts
        else {}
        for at, measured in enumerate(measures)
    ]
    for measured in measures:
        for note in measured.notes:
            print_message(f"{measured.system}: {note}")
    rows = list(zip(measures, intervals, tests, strict=True))
    signatures = (f"{name}: {signature}" for name, signature in measures[0].signatures.items())
    return Result(
        (_record(*row) for row in rows), [_table(rows), *signatures], partial(_draw, measures, intervals)
    )


def _own_measure(name: str, references: SystemOutputs | None) -> Callable[[Sequence[str]], SummedMeasure]:
    from unspool.arguments import function_of
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


def _measure_systems(
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


def _record(
    measures: SystemMeasures, intervals: dict[str, Interval], tests: dict[str, PairedTest]
) -> dict[str, Any]:
    return {
        "system": measures.system,
        "texts": measures.texts,
        "empty": measures.empty,
        "measures": dict(measures.values),
        "intervals": {name: [interval.low, interval.high] for name, interval in intervals.items()},
        "against_first": {name: asdict(test) for name, test in tests.items()},
        "signatures": dict(measures.signatures),
        "notes": list(measures.notes),
    }


def _table(systems: Sequence[tuple[SystemMeasures, dict[str, Interval], dict[str, PairedTest]]]) -> Table:
    counts = (
        f"{system.texts}" + (f" ({system.empty} empty)" if system.empty else "") for system, _, _ in systems
    )
    rows = [["texts", *counts]]
    for name in dict.fromkeys(name for system, _, _ in systems for name in system.values):
        cells = (
            _cell(system.values.get(name), interval.get(name), test.get(name))
            for system, interval, test in systems
        )
        rows.append([name, *cells])
    return Table(["", *(system.system for system, _, _ in systems)], rows)


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
            measured.system: interval.get(name)
            or Interval(measured.values[name], measured.values[name], measured.values[name], 1.0)
            for measured, interval in zip(measures, intervals, strict=True)
            if name in measured.values
        }
        for name in names
    }
    draw_intervals(panels, path)


MODEL_EXAMPLES = """examples:
  unspool evaluate model smollm2 --text book.txt --document file
  unspool evaluate model runs/dates --text pairs.tsv --json --figure reliability.svg

A run folder reads the columns and fields of a file as in training. Bits per byte compare models
with different tokenizers; perplexities do not. ECE (expected calibration error) is the distance
between confidence and accuracy of the most probable token; the figure is the reliability diagram.
"""


@command(
    MODEL_EXAMPLES,
    add_model_argument,
    partial(add_text_options, required=True),
    add_reading_options,
    number("--bins", 15, "bins of confidence"),
    figure=True,
)
def evaluate_model(args: argparse.Namespace) -> Result:
    """Measure a model on a text: perplexity and calibration."""
    from unspool.evaluate.confidence_calibration import token_calibration
    from unspool.evaluate.teacher_forcing import perplexity
    from unspool.plots.figures import draw_reliability

    model = load_model(args)
    sources, texts = given_texts(model, args)
    try:
        result = perplexity(model, texts, sources, context=args.context)
        calibration = token_calibration(model, texts, sources, context=args.context, bins=args.bins)
    except ValueError as error:
        raise ValueError(f"{args.text}: {error}") from error
    bits_per_byte = result.nats / log(2) / sum(len(text.encode()) for text in texts)
    record = {
        "texts": len(texts),
        "tokens": result.tokens,
        "perplexity": result.value,
        "bits_per_byte": bits_per_byte,
        "by_text": result.by_text,
        "calibration": asdict(calibration),
    }
    null = calibration.null
    lines = [
        f"perplexity     {result.value:.3f}   of {result.tokens:,} tokens in {len(texts):,} texts",
        f"bits per byte  {bits_per_byte:.4f}",
        f"accuracy       {calibration.accuracy:.4f}   of the most probable token",
        f"confidence     {calibration.confidence:.4f}   on average",
        f"ECE            {calibration.ece:.4f}   in {args.bins} bins; largest gap {calibration.worst:.3f}",
        f"  by chance    {null.low:.4f} to {null.high:.4f} for a perfectly calibrated model",
    ]
    return Result([record], lines, partial(draw_reliability, calibration))


TRUTH_EXAMPLES = """examples:
  unspool evaluate truth runs/language
  unspool evaluate truth runs/language --decoder "Sample(TopP(0.9))" --decoder "Beam(4)" --json

The run must be trained on a language of the package (data.kind = "language"), whose next-token
probabilities are known for every prefix.

columns:
  precision, recall   share of the kept tokens that are possible, and of the possible tokens that are kept
  mass lost           probability of the possible tokens that are not kept
  TV, KL, reverse KL  distance between the sampled distribution and the truth
  texts possible      generated texts that the language can produce
  text recall         share of the language that they cover
Decoders that rank whole texts (beams) have only the last two.
"""
TRUTH_DECODERS = ("Sample()", "Sample(TopP(0.9))", "Sample(TopK(40))", "Sample(MinP(0.1))", "Greedy()")
TRUTH_COLUMNS = (
    *("precision", "recall", "mass lost", "TV", "KL", "reverse KL"),
    *("texts possible", "text recall"),
)
MAX_TRUTH_TOKENS = 256
"""For models with an unlimited context."""


@command(
    TRUTH_EXAMPLES,
    add_model_argument,
    add_decoders_option,
    number("--sentences", 100, "sentences of the language"),
    number("--texts", 200, "texts to generate per decoder"),
    add_seed_option,
    json="one JSON object per decoder",
)
def evaluate_truth(args: argparse.Namespace) -> Result:
    """Compare decoders with the exact probabilities of a language."""
    import unspool as us
    from unspool.diagnose.evaluation_texts import find_language

    decoders = {spec: us.parse(spec) for spec in args.decoder or TRUTH_DECODERS}
    model = load_model(args)
    language = find_language(model, Path(args.model))
    if language is None:
        raise ValueError(
            f'{args.model} was not trained on the words of a language of the package (data.kind = "language")'
        )
    results = {}
    for name, decoder in decoders.items():
        try:
            results[name] = _measure_decoder(decoder, model, language, args)
        except ValueError as error:
            print_message(f"{name}: {error}")
    table = Table(
        ["decoder", *TRUTH_COLUMNS], [[name, *_truth_cells(result)] for name, result in results.items()]
    )
    return Result(
        ({"decoder": name, **result} for name, result in results.items()),
        [table] if results else [],
        status=0 if len(results) == len(decoders) else 2,
    )


def _measure_decoder(decoder: Any, model: Any, language: Any, args: argparse.Namespace) -> dict[str, Any]:
    import unspool as us
    from unspool.evaluate.known_truth import decoder_truth, text_truth

    tokens = None
    if isinstance(decoder, us.Greedy | us.Sample):
        tokens = asdict(decoder_truth(decoder, model, language, sentences=args.sentences, seed=args.seed))
    length = MAX_TRUTH_TOKENS if model.context is None else model.context - 1
    n = args.texts
    if not isinstance(decoder, us.Sample):  # Greedy gives one text, a beam as many as it is wide
        n = min(args.texts, getattr(decoder, "width", 1))
    output = us.generate(model, [language.bos], decoder, n=n, max_new_tokens=length, seed=args.seed)
    outputs = output if isinstance(output, list) else [output]
    return {"tokens": tokens, "texts": asdict(text_truth([output.tokens for output in outputs], language))}


def _truth_cells(result: dict[str, Any]) -> list[str]:
    """The numbers of a decoder in the order of TRUTH_COLUMNS."""
    tokens, texts = result["tokens"], result["texts"]
    cells = ["–"] * 6
    if tokens is not None:
        support = tokens["support"]
        numbers = [support["precision"], support["recall"], 1 - support["mass_recall"]]
        numbers += [tokens["total_variation"], tokens["kl"], tokens["reverse_kl"]]
        cells = [f"{number:.3f}" for number in numbers]
    return [*cells, f"{texts['precision']:.3f} of {texts['texts']}", f"{texts['recall']:.3f}"]


COMMAND = CommandGroup(
    "Measure texts, models and decoders, with confidence intervals.",
    {"texts": evaluate_texts, "model": evaluate_model, "truth": evaluate_truth},
)
