"""`unspool evaluate truth`: compare decoders with the exact probabilities of a made-up language."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unspool.cli.decoders import add_decoders_option
from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import add_model_argument, add_seed_option, command, number

EXAMPLES = """examples:
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
DECODERS = ("Sample()", "Sample(TopP(0.9))", "Sample(TopK(40))", "Sample(MinP(0.1))", "Greedy()")
COLUMNS = ("precision", "recall", "mass lost", "TV", "KL", "reverse KL", "texts possible", "text recall")
MAX_NEW_TOKENS = 256
"""For models with an unlimited context."""


@command(
    EXAMPLES,
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

    decoders = {spec: us.parse(spec) for spec in args.decoder or DECODERS}
    model = load_model(args)
    language = find_language(model, Path(args.model), warn=print_message)
    if language is None:
        raise ValueError(
            f'{args.model} was not trained on the words of a language of the package (data.kind = "language")'
        )
    results = {}
    for name, decoder in decoders.items():
        try:
            results[name] = _measure(decoder, model, language, args)
        except ValueError as error:
            print_message(f"{name}: {error}")
    table = Table(["decoder", *COLUMNS], [[name, *_cells(it)] for name, it in results.items()])
    return Result(
        ({"decoder": name, **it} for name, it in results.items()),
        [table] if results else [],
        status=0 if len(results) == len(decoders) else 2,
    )


def _measure(decoder: Any, model: Any, language: Any, args: argparse.Namespace) -> dict[str, Any]:
    import unspool as us
    from unspool.evaluate.known_truth import decoder_truth, text_truth

    tokens = None
    if isinstance(decoder, us.Greedy | us.Sample):
        tokens = asdict(decoder_truth(decoder, model, language, sentences=args.sentences, seed=args.seed))
    length = MAX_NEW_TOKENS if model.context is None else model.context - 1
    n = args.texts
    if not isinstance(decoder, us.Sample):  # Greedy gives one text, a beam as many as it is wide
        n = min(args.texts, getattr(decoder, "width", 1))
    output = us.generate(model, [language.bos], decoder, n=n, max_new_tokens=length, seed=args.seed)
    outputs = output if isinstance(output, list) else [output]
    return {"tokens": tokens, "texts": asdict(text_truth([output.tokens for output in outputs], language))}


def _numbers(result: dict[str, Any]) -> list[float | None]:
    """The numbers of a decoder in the order of COLUMNS."""
    tokens, texts = result["tokens"], result["texts"]
    first: list[float | None] = [None] * 6
    if tokens is not None:
        support = tokens["support"]
        first = [support["precision"], support["recall"], 1 - support["mass_recall"]]
        first += [tokens["total_variation"], tokens["kl"], tokens["reverse_kl"]]
    return [*first, texts["precision"], texts["recall"]]


def _cells(result: dict[str, Any]) -> list[str]:
    *first, possible, recall = ("–" if number is None else f"{number:.3f}" for number in _numbers(result))
    return [*first, f"{possible} of {result['texts']['texts']}", recall]
