"""`unspool diagnose senses`: the senses of the words of a KerBS head, with contexts of each sense."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load_model
from unspool.cli.output import Result, Table, print_message
from unspool.cli.parser import add_model_argument, command, number
from unspool.errors import replace_control_characters

if TYPE_CHECKING:
    from unspool.diagnose.word_senses import Place, Senses, WordSenses, WordUse
    from unspool.interfaces import TokenizerLike

EXAMPLES = """examples:
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
    EXAMPLES,
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
    contexts = [[writer.text(place.before) for place in places] for places in use.places]
    record = {"said": use.count, "shares": use.shares, "contexts": contexts}
    if any(place.source for places in use.places for place in places):
        record["sources"] = [[writer.source(place.source, None) for place in places] for places in use.places]
    return record


def _figure_rows(uses: dict[int, WordUse], writer: TokenWriter) -> list[tuple[str, float]]:
    return [
        (f"{writer.place(places[0])} [{writer.word(word)}]", share)
        for word, use in uses.items()
        if len(use.shares) > 1
        for share, places in zip(use.shares, use.places, strict=True)
    ]


def _use_lines(uses: dict[int, WordUse], writer: TokenWriter) -> Iterator[str]:
    for word, use in uses.items():
        if len(use.shares) < 2:
            continue
        yield f"\n{replace_control_characters(writer.word(word))}, {use.count:,} times"
        for share, places in zip(use.shares, use.places, strict=True):
            contexts = "  |  ".join(replace_control_characters(writer.place(place)) for place in places)
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
        """Several tokens, with a mark at the start of a text."""
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

    def place(self, place: Place) -> str:
        """The text before a word, after the first words of the source if there is one."""
        before, source = self.text(place.before), self.source(place.source)
        return f"{source} → {before}" if source else before

    def source(self, tokens: Sequence[int], limit: int | None = SOURCE_TOKENS) -> str:
        words = [token for token in tokens if self._tokenizer is None or token not in self._tokenizer.eos_ids]
        return self.text(words[:limit]) + " …" * (len(words[:limit]) < len(words))
