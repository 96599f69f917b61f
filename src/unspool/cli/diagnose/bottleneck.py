"""`unspool diagnose bottleneck`: the softmax bottleneck, i.e. the rank of a model's log-probabilities."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.models import load_model
from unspool.cli.output import Result, print_message
from unspool.cli.parser import add_model_argument, add_seed_option, command, number
from unspool.cli.texts import add_text_options, text_layout

if TYPE_CHECKING:
    from unspool.diagnose.overestimation import Distance
    from unspool.diagnose.softmax_bottleneck import Bottleneck

EXAMPLES = """examples:
  unspool diagnose bottleneck smollm2
  unspool diagnose bottleneck smollm2 --text book.txt --document file --figure spectrum.svg
  unspool diagnose bottleneck runs/kerbs --text articles.jsonl --contexts 300 --json

A head with one output matrix of width D has at most rank D + 1 (D + 2 with a bias) over any number of
contexts. δ bounds how much a true log-probability is underestimated, and 1 − e^(−δ) how much a
probability is overestimated. Truncation at that threshold keeps only possible tokens.

Without --text the model is measured on text that it generates. A run trained on a language of the
package (data.kind = "language") is measured on its sentences and compared with the truth by the error of
the model, the least error of any matrix of its rank (Eckart & Young), and the largest underestimation.
Impossible words have log p = −∞. For the error, the truth is mixed with a share s of the uniform
distribution.

An encoder–decoder is measured on its run's validation pairs or those of --text; without either, on its
outputs for random words.
"""


@command(
    EXAMPLES,
    add_model_argument,
    partial(add_text_options, default="see below"),
    number(
        "--contexts",
        None,
        "positions to measure (default: 64 more than the largest possible rank; 512 without a single output "
        "matrix)",
    ),
    add_seed_option,
    figure=True,
    json="one JSON object with all singular values",
)
def bottleneck(args: argparse.Namespace) -> Result:
    """Measure the softmax bottleneck: the rank of a model's log-probabilities over many contexts."""
    from unspool.diagnose.evaluation_texts import find_windows
    from unspool.diagnose.softmax_bottleneck import fitting_contexts, measure
    from unspool.plots.figures import draw_spectrum

    model = load_model(args)
    contexts = args.contexts or fitting_contexts(model)
    try:
        texts = find_windows(
            model, Path(args.model), args.text, contexts, args.seed, text_layout(args), warn=print_message
        )
        result = measure(model, texts.windows, contexts)
        truth = texts.distance_to_truth(model, contexts)
    except ValueError as error:
        where = str(args.text or args.model)
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    derived = {"conclusive": result.conclusive, "tau": result.tau, "uniform_delta": result.uniform_delta}
    context = {"texts": texts.source, "truth": None if truth is None else asdict(truth)}
    return Result(
        [asdict(result) | derived | context],
        [*_result_lines(result, texts.source), *([] if truth is None else _truth_lines(result, truth))],
        partial(draw_spectrum, result),
    )


def _result_lines(result: Bottleneck, source: str) -> list[str]:
    limit = "no single output matrix: any rank" if result.limit is None else f"at most {result.limit_formula}"
    distinct = "" if result.distinct == result.contexts else f" ({result.distinct:,} different)"
    lines = [
        f"contexts             {result.contexts:,}{distinct} of {result.vocab_size:,} words, in {source}",
        f"rank of log p        {result.rank:,} ({limit})",
    ]
    if result.limit is not None and result.limit >= result.vocab_size:
        lines.append("                     the vocabulary is not larger than that: no bottleneck")
    elif not result.conclusive:
        few = "contexts" if result.distinct == result.contexts else "different contexts"
        lines.append(f"                     too few {few} to tell: give a longer text or more --contexts")
    lines.append(f"singular values      {_selected(result.singular_values)}")
    if result.weight_singular_values:
        lines.append(f"… of the matrix      {_selected(result.weight_singular_values)}")
    uniform, bound = f"{result.uniform_delta:.2f} if uniform", _one_minus_exp(result.delta)
    lines += [
        f"underestimation      at most δ = {result.delta:.2f} nats anywhere ({uniform})",
        f"overestimation       at most 1 − e^(−δ) = {bound}; a word above it is possible",
    ]
    return lines


def _truth_lines(result: Bottleneck, truth: Distance) -> list[str]:
    least = "any rank is possible, so there is no bound"
    if truth.least is not None:
        least = f"every matrix of rank {result.limit:,} has at least {truth.least:.4g}"
    delta = _one_minus_exp(truth.delta)
    return [
        f"beside the truth     of rank {truth.rank:,}; s = {truth.share:g} makes every word possible",
        f"error of log p       {truth.reached:.4g}; {least}",
        f"underestimation      δ = {truth.delta:.2f} nats measured, and 1 − e^(−δ) = {delta}",
        f"overestimation       {truth.overestimation:.3f} measured",
    ]


def _one_minus_exp(delta: float) -> str:
    """1 − e^(−δ), written as 1 − x if it would be rounded to 1."""
    rest = math.exp(-delta)
    return f"1 − {rest:.2g}" if rest < 1e-3 else f"{1 - rest:.3f}"


def _selected(values: tuple[float, ...]) -> str:
    """The first, middle and last values with their ranks."""
    last = len(values) - 1
    ranks = sorted({0, min(1, last), last // 4, last // 2, 3 * last // 4, last})
    return "  ".join(f"{rank + 1}: {values[rank]:.3g}" for rank in ranks)
