"""`unspool evaluate truth`: decoders beside the truth of the language that a run has learnt."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unspool.cli.decoders import add_several_decoders_option, name_decoders
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, natural, positive

SUMMARY = "Set decoders beside the truth: what they keep, lose and make up, exactly."
EXAMPLES = """examples:
  unspool evaluate truth runs/language
  unspool evaluate truth runs/language --decoder "Sample(TopP(0.9))" --decoder "Beam(4)" --json

The run must have learnt a language of the package (data.kind = "language"), whose next-token probabilities
are known for every prefix. Tokens: what a decoder may draw at every place of sentences of the language
(precision: how much of it can come; recall: how much of what can come it keeps), and the distance between
what it draws from and the truth. Texts: how many of those generated the language can speak, and how much of
it they cover. Searches that weigh whole texts (beams) have the second only.
"""
DECODERS = ("Sample()", "Sample(TopP(0.9))", "Sample(TopK(40))", "Sample(MinP(0.1))", "Greedy()")
COLUMNS = ("precision", "recall", "mass lost", "TV", "KL", "reverse KL", "texts possible", "text recall")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool evaluate truth` takes."""
    parser.add_argument("model", metavar="RUN", help="a run folder of a language model")
    add_running_options(parser)
    add_several_decoders_option(parser)
    parser.add_argument("--decoders", type=Path, metavar="PATH", help="a TOML file of decoders by name")
    parser.add_argument(
        "--sentences", type=positive, default=100, metavar="N", help="of the language (default: 100)"
    )
    parser.add_argument(
        "--texts", type=positive, default=200, metavar="N", help="to generate with each (default: 200)"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of all draws (default: 0)")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object for each decoder")


def run(args: argparse.Namespace) -> int:
    """Measure one decoder after the other."""
    named = name_decoders(args.decoder, args.decoders, DECODERS)

    import unspool as us

    decoders = {name: us.parse(spec) for name, spec in named.items()}
    if args.figure:
        from unspool.plots.canvas import figure_path

        figure_path(args.figure)
    with reserved(args.figure):
        found, failed = _all(args, decoders)
        if args.figure and found:
            _draw(found, args.figure)
    if args.json:
        for name, it in found.items():
            print(json_line({"decoder": name, "spec": named[name], **it}))
    elif found:
        print_rows(["decoder", *COLUMNS], [[name, *_cells(it)] for name, it in found.items()])
    if args.figure and found:
        tell(f"wrote {args.figure}")
    return 2 if failed else 0


def _all(args: argparse.Namespace, decoders: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], int]:
    """What was found of each decoder, and how many could not be measured."""
    from unspool.diagnose.evaluation_texts import find_language

    model = load_speaker(args)
    language = find_language(model, Path(args.model), warn=tell)
    if language is None:
        raise ValueError(
            f'{args.model} is no run that learnt a language of the package (data.kind = "language") word by '
            "word: there is no truth to set decoders beside"
        )
    found, failed = {}, 0
    for name, decoder in decoders.items():
        try:
            found[name] = _measured(decoder, model, language, args)
        except ValueError as error:  # one decoder may not suit the model; the others do
            tell(f"{name}: {error}")
            failed += 1
    return found, failed


def _draw(found: Mapping[str, dict[str, Any]], path: Path) -> None:
    from unspool.evaluate.significance import Interval
    from unspool.plots.figures import draw_intervals

    cells = {name: dict(zip(COLUMNS, _numbers(it), strict=True)) for name, it in found.items()}
    panels = {
        column: {
            name: Interval(value, value, value, 1.0)
            for name, of in cells.items()
            if (value := of[column]) is not None
        }
        for column in COLUMNS
    }
    draw_intervals({column: of for column, of in panels.items() if of}, path)


def _measured(decoder: Any, model: Any, language: Any, args: argparse.Namespace) -> dict[str, Any]:
    import unspool as us
    from unspool.decode.search import Greedy, Sample
    from unspool.evaluate.known_truth import decoder_truth, text_truth

    tokens = None
    if isinstance(decoder, Greedy | Sample):
        tokens = asdict(decoder_truth(decoder, model, language, sentences=args.sentences, seed=args.seed))
    longest = 256 if model.context is None else model.context - 1
    said = us.generate(
        model,
        [language.bos],
        decoder,
        n=_several(decoder, args.texts),
        max_new_tokens=longest,
        seed=args.seed,
    )
    outs = said if isinstance(said, list) else [said]
    return {"tokens": tokens, "texts": asdict(text_truth([it.tokens for it in outs], language))}


def _several(decoder: Any, texts: int) -> int:
    """How many different texts a search can give: one by Greedy, a beam's width."""
    from unspool.decode.search import Greedy, Sample

    if isinstance(decoder, Sample):
        return texts
    return 1 if isinstance(decoder, Greedy) else min(texts, getattr(decoder, "width", 1))


def _numbers(found: dict[str, Any]) -> list[float | None]:
    """In the order of COLUMNS."""
    tokens, texts = found["tokens"], found["texts"]
    first: list[float | None] = [None] * 6
    if tokens is not None:
        kept = tokens["support"]
        first = [kept["precision"], kept["recall"], 1 - kept["mass_recall"], tokens["total_variation"]]
        first += [tokens["kl"], tokens["reverse_kl"]]
    return [*first, texts["precision"], texts["recall"]]


def _cells(found: dict[str, Any]) -> list[str]:
    *first, possible, recall = ("–" if it is None else f"{it:.3f}" for it in _numbers(found))
    return [*first, f"{possible} of {found['texts']['texts']}", recall]
