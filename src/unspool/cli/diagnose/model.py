"""`unspool diagnose attention | heads | bottleneck | senses`: what is inside a model."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load, load_model, load_options
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import add_model_argument, add_seed_option, command, number, option
from unspool.cli.texts import add_text_options, text_layout
from unspool.errors import replace_control_characters

if TYPE_CHECKING:
    from unspool.diagnose.overestimation import Distance
    from unspool.diagnose.softmax_bottleneck import Bottleneck
    from unspool.diagnose.text_attention import AttentionMap
    from unspool.diagnose.word_senses import Occurrence, Senses, WordSenses, WordUse
    from unspool.interfaces import TokenizerLike

ATTENTION_EXAMPLES = """examples:
  unspool diagnose attention smollm2 "The keeper of the old lighthouse climbed the stairs." --figure heads.png
  unspool diagnose attention smollm2 "The keeper climbed the stairs." --layer 3 --figure layer.svg --json
  unspool diagnose attention dates "1921-05-05" --source "the 5th of May, 1921" --figure alignment.svg

Layers and heads are counted from 0. Without --layer and --head the figure shows all of them, small.
The column "attends to" names the position that gets at least half of a head's attention on average.
"""
HEADS_EXAMPLES = """examples:
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu --sentences 200
  unspool diagnose heads runs/ewt en_ewt-ud-dev.conllu --labels nsubj obj --json
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu --figure heads.svg

For each dependency label, prints the head whose strongest attention from the later word of an arc
most often is on the earlier word, and the best fixed offset ("the previous word") for comparison.
Attention is summed over the subword tokens of the word attended to and averaged over those of the
other. Layers and heads are counted from 0.
"""
HEAD_COLUMNS = {
    "label": "{row.label}",
    "arcs": "{row.arcs}",
    "best head": "{row.layer}.{row.head}",
    "agrees": "{row.agreement:.1%}",
    "best offset": "-{row.offset}",
    "offset agrees": "{row.offset_agreement:.1%}",
}


@command(
    ATTENTION_EXAMPLES,
    add_model_argument,
    option("text", metavar="TEXT", help="text to read; for an encoder–decoder, the target"),
    option("--source", metavar="TEXT", help="source text, for an encoder–decoder"),
    number("--layer", None, "draw only the heads of this layer", minimum=0),
    number("--head", None, "draw only this head", minimum=0),
    figure=True,
    json="one JSON object with all attention weights",
)
def attention(args: argparse.Namespace) -> Result:
    """Draw the attention of a language model's heads, or the alignment of an encoder–decoder."""
    from unspool.diagnose.text_attention import attention_maps
    from unspool.plots.figures import draw_attention

    result = attention_maps(load_model(args), args.text, args.source)
    texts = {"verdict": result.verdict, "tokens": result.tokens, "sources": result.sources}
    names = ["to the source" if head.layer is None else f"{head.layer}.{head.head}" for head in result.maps]
    rows = [
        [name, head.attends_to, f"{head.share:.0%}"] for name, head in zip(names, result.maps, strict=True)
    ]
    return Result(
        [{**texts, "maps": [_map_record(head) for head in result.maps]}],
        [Table(["layer.head", "attends to", "share"], rows), result.verdict],
        partial(draw_attention, result, layer=args.layer, head=args.head),
    )


def _map_record(head: AttentionMap) -> dict[str, Any]:
    weights = [[round(float(value), 6) for value in row] for row in head.weights_TS]
    position = {"layer": head.layer, "head": head.head}
    return {**position, "attends_to": head.attends_to, "share": head.share, "weights": weights}


@command(
    HEADS_EXAMPLES,
    add_model_argument,
    option("treebank", type=Path, metavar="TREEBANK", help="a CoNLL-U file"),
    option("--labels", nargs="+", metavar="LABEL", help="only these (default: all frequent labels)"),
    number("--sentences", None, "only the first N sentences (default: all)"),
    figure=True,
    json="one JSON object per label",
)
def heads(args: argparse.Namespace) -> Result:
    """Find the attention heads that follow the dependency arcs of a treebank."""
    from unspool.data.conllu import read_treebank

    sentences = read_treebank(args.treebank)[: args.sentences]
    from unspool.diagnose.dependency_agreement import agreements
    from unspool.plots.figures import draw_heads

    model = load(args.model, load_options(args))
    result = agreements(model, sentences, args.labels, min_arcs=max(5, len(sentences) // 10))
    if not result:
        raise ValueError("no label is frequent enough: use more --sentences, or give --labels")
    return Result(map(asdict, result), [Table.of(HEAD_COLUMNS, result)], partial(draw_heads, result))


BOTTLENECK_EXAMPLES = """examples:
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
    BOTTLENECK_EXAMPLES,
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
        texts = find_windows(model, Path(args.model), args.text, contexts, args.seed, text_layout(args))
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
        f"true log p           rank {truth.rank:,}, with a share s = {truth.share:g} of the uniform one",
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


SENSES_EXAMPLES = """examples:
  unspool diagnose senses runs/kerbs
  unspool diagnose senses runs/kerbs --words 100 --examples 0 --json
  unspool diagnose senses runs/kerbs --figure senses.svg

Words with the most senses are first. θ is the width of a sense; cos is between two senses of a
word. The shares of the senses and the contexts are from the run's validation text. ⟨start⟩ marks
the beginning of a text; for an encoder–decoder the beginning of the source is shown, too: source →
target so far.
"""
START = "⟨start⟩"
SOURCE_TOKENS = 5
"""Tokens of a source that are shown."""


@command(
    SENSES_EXAMPLES,
    add_model_argument,
    number("--words", 20, "words to show"),
    number("--examples", 2, "contexts per sense; 0 does not read the validation text", minimum=0),
    figure=True,
    json="one JSON object per word",
)
def show_senses(args: argparse.Namespace) -> Result:
    """Show the senses of the words of a KerBS head."""
    from unspool.diagnose.word_senses import senses
    from unspool.plots.figures import draw_senses

    model = load_model(args)
    try:
        result = senses(model)
    except TypeError as error:
        raise ValueError(f"{args.model}: {error}") from error
    words = result.words[: args.words]
    uses = _word_uses(args, model, [word.word for word in words]) if args.examples else {}
    writer = TokenWriter(model.tokenizer)
    return Result(
        (
            {**asdict(word), "text": writer.word(word.word), **_use_record(uses.get(word.word), writer)}
            for word in words
        ),
        [*_sense_lines(result, words, writer), *_use_lines(uses, writer)],
        partial(draw_senses, result, uses=_figure_rows(uses, writer)),
    )


def _word_uses(args: argparse.Namespace, model: Any, words: list[int]) -> dict[int, WordUse]:
    """The uses of the words in the run's validation text; empty, with a message, if it cannot be read."""
    from unspool.data.preparation import prepare
    from unspool.diagnose.word_senses import sense_contexts
    from unspool.training import read_recipe

    folder = Path(args.model)
    try:
        recipe = read_recipe(folder / "recipe.toml")
        batches = prepare(recipe.data, model.tokenizer, recipe.batches, recipe.seed, folder / "data").valid
    except (OSError, ValueError) as error:
        print_message(f"contexts are left out, because the run's text cannot be read: {error}")
        return {}
    return sense_contexts(model, batches, words, examples=args.examples)


def _use_record(use: WordUse | None, writer: TokenWriter) -> dict[str, Any]:
    if use is None:
        return {}
    by_sense = use.occurrences
    contexts = [[writer.text(it.before) for it in occurrences] for occurrences in by_sense]
    record = {"count": use.count, "shares": use.shares, "contexts": contexts}
    if any(it.source for occurrences in use.occurrences for it in occurrences):
        record["sources"] = [
            [writer.source(it.source, None) for it in occurrences] for occurrences in use.occurrences
        ]
    return record


def _figure_rows(uses: dict[int, WordUse], writer: TokenWriter) -> list[tuple[str, float]]:
    return [
        (f"{writer.context(occurrences[0])} [{writer.word(word)}]", share)
        for word, use in uses.items()
        if len(use.shares) > 1
        for share, occurrences in zip(use.shares, use.occurrences, strict=True)
    ]


def _use_lines(uses: dict[int, WordUse], writer: TokenWriter) -> Iterator[str]:
    for word, use in uses.items():
        if len(use.shares) < 2:
            continue
        yield f"\n{replace_control_characters(writer.word(word))}, {use.count:,} times"
        for share, occurrences in zip(use.shares, use.occurrences, strict=True):
            contexts = "  |  ".join(replace_control_characters(writer.context(it)) for it in occurrences)
            yield f"  {100 * share:3.0f} %  after  {contexts}"


def _sense_lines(result: Senses, words: Sequence[WordSenses], writer: TokenWriter) -> Iterator[str | Table]:
    counts = (f"{number} sense{'s' * (number != 1)}: {count:,}" for number, count in result.by_number.items())
    yield "words with " + ",  ".join(counts)
    rows = [
        [
            writer.word(word.word),
            str(len(word.thetas)),
            " ".join(f"{theta:+.2f}" for theta in word.thetas),
            "" if word.farthest is None else f"{word.farthest:.2f} … {word.closest:.2f}",
        ]
        for word in words
    ]
    columns = ["word", "senses", "θ", "cos"]
    yield Table(columns, rows, left=columns)


class TokenWriter:
    """Writes tokens as readable text."""

    def __init__(self, tokenizer: TokenizerLike | None) -> None:
        self._tokenizer = tokenizer

    def word(self, word: int) -> str:
        """One token in quotes, or its number."""
        text = "" if self._tokenizer is None else self._tokenizer.decode([word])
        return repr(text) if text else f"#{word}"  # special tokens decode to nothing

    def text(self, tokens: Sequence[int]) -> str:
        if self._tokenizer is None:
            return " ".join(f"#{token}" for token in tokens)
        # A text begins after BOS; if there is none, after the EOS of the previous text.
        separators = self._tokenizer.eos_ids if self._tokenizer.bos_id is None else {self._tokenizer.bos_id}
        texts: list[list[int]] = [[]]
        for token in tokens:
            if token in separators:
                texts.append([])
            else:
                texts[-1].append(token)
        first, *others = (self._tokenizer.decode(text) for text in texts)
        return " ".join(
            part for part in (first, *(piece for other in others for piece in (START, other))) if part
        )

    def context(self, occurrence: Occurrence) -> str:
        """The text before a word, after the first words of the source if there is one."""
        before, source = self.text(occurrence.before), self.source(occurrence.source)
        return f"{source} → {before}" if source else before

    def source(self, tokens: Sequence[int], limit: int | None = SOURCE_TOKENS) -> str:
        words = [token for token in tokens if self._tokenizer is None or token not in self._tokenizer.eos_ids]
        return self.text(words[:limit]) + " …" * (len(words[:limit]) < len(words))
