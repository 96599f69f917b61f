"""`unspool diagnose senses`: the senses of a KerBS head's words, how wide they are, how used, and where."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, reserved, tell
from unspool.cli.parser import add_running_options, natural, positive
from unspool.errors import replace_control_characters

if TYPE_CHECKING:
    from unspool.diagnose.word_senses import Place, Senses, WordUse
    from unspool.interfaces import TokenizerLike

SUMMARY = "Show the senses of the words of a KerBS head."
EXAMPLES = """examples:
  unspool diagnose senses runs/kerbs
  unspool diagnose senses runs/kerbs --words 100 --examples 0 --json
  unspool diagnose senses runs/kerbs -o senses.svg

Words with the most senses come first. θ is how wide a sense is; cos is between two senses of a word. How much
each sense is used, and examples of what stands before it, are from the run's own validation text. ⟨start⟩ is
where a text begins; of an encoder–decoder the beginning of the source is shown, too: source → target so far.
"""
START = "⟨start⟩"
SOURCE = 5
"""Tokens of a source that are shown."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose senses` takes."""
    parser.add_argument("model", metavar="RUN", help="a run folder whose model has a KerBS head")
    add_running_options(parser)
    parser.add_argument(
        "--words", type=positive, default=20, metavar="N", help="words to show (default: %(default)s)"
    )
    parser.add_argument(
        "--examples",
        type=natural,
        default=2,
        metavar="N",
        help="contexts to show of every sense; 0 reads no text (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw them: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object for each word")


def run(args: argparse.Namespace) -> int:
    """Load the run, show its senses."""
    from unspool.diagnose.word_senses import senses
    from unspool.plots.canvas import figure_path

    if args.output:
        figure_path(args.output)
    with reserved(args.output):  # a path that cannot be written must fail before the work, not after it
        model = load_speaker(args)
        try:
            found = senses(model)
        except TypeError as error:
            raise ValueError(f"{args.model}: {error}") from error
        shown = found.words[: args.words]
        used = _used(args, model, [it.word for it in shown]) if args.examples else {}
        spelt = Spelling(model.tokenizer)
        if args.output:
            from unspool.plots.figures import draw_senses

            draw_senses(found, args.output, _rows(used, spelt))
    if args.json:
        for it in shown:
            print(json_line({**asdict(it), "text": spelt.word(it.word), **_said(used.get(it.word), spelt)}))
    else:
        _print_table(found, args.words, spelt)
        _print_uses(used, spelt)
    if args.output:
        tell(f"wrote {args.output}")
    return 0


def _used(args: argparse.Namespace, model: Any, words: list[int]) -> dict[int, WordUse]:
    """From the run's validation text; nothing, and a word about it, where that is no longer there."""
    from unspool.data.preparation import prepare
    from unspool.diagnose.word_senses import sense_contexts
    from unspool.training import read_recipe

    folder = Path(args.model)
    try:
        recipe = read_recipe(folder / "recipe.toml")
        batches = prepare(recipe.data, model.tokenizer, recipe.batches, recipe.seed, folder / "data").valid
    except (OSError, ValueError) as error:
        tell(f"no contexts are shown, for the run's text cannot be read: {error}")
        return {}
    return sense_contexts(model, batches, words, examples=args.examples)


def _said(use: WordUse | None, spelt: Spelling) -> dict[str, Any]:
    if use is None:
        return {}
    contexts = [[spelt.text(place.before) for place in of_sense] for of_sense in use.places]
    found = {"said": use.count, "shares": use.shares, "contexts": contexts}
    if any(place.source for of_sense in use.places for place in of_sense):
        found["sources"] = [
            [spelt.source(place.source, None) for place in of_sense] for of_sense in use.places
        ]
    return found


def _rows(used: dict[int, WordUse], spelt: Spelling) -> list[tuple[str, float]]:
    """A label and a share for every sense of words that have several, and were said."""
    return [
        (f"{spelt.place(places[0])} [{spelt.word(word)}]", share)
        for word, use in used.items()
        if len(use.shares) > 1
        for share, places in zip(use.shares, use.places, strict=True)
    ]


def _print_uses(used: dict[int, WordUse], spelt: Spelling) -> None:
    for word, use in used.items():
        if len(use.shares) < 2:
            continue
        print(f"\n{replace_control_characters(spelt.word(word))}, said {use.count:,} times")
        for share, places in zip(use.shares, use.places, strict=True):
            contexts = "  |  ".join(replace_control_characters(spelt.place(place)) for place in places)
            print(f"  {100 * share:3.0f} %  after  {contexts}")


def _print_table(found: Senses, words: int, spelt: Spelling) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    print(
        "words with "
        + ",  ".join(f"{number} {_plural(number)}: {count:,}" for number, count in found.by_number.items())
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("word", "senses", "θ", "cos"):
        table.add_column(name, overflow="fold")
    for it in found.words[:words]:
        thetas = " ".join(f"{theta:+.2f}" for theta in it.thetas)
        cosines = "" if it.farthest is None else f"{it.farthest:.2f} … {it.closest:.2f}"
        table.add_row(replace_control_characters(spelt.word(it.word)), str(len(it.thetas)), thetas, cosines)
    console = Console(markup=False)
    if not console.is_terminal and console.width < 100:
        console.width = 100
    console.print(table)


def _plural(number: int) -> str:
    return "sense" if number == 1 else "senses"


class Spelling:
    """Tokens as they are shown."""

    def __init__(self, text: TokenizerLike | None) -> None:
        self._text = text

    def word(self, word: int) -> str:
        """One word in quotes, or its number."""
        spelt = "" if self._text is None else self._text.decode([word])
        return repr(spelt) if spelt else f"#{word}"  # special tokens are spelt as nothing

    def text(self, tokens: Sequence[int]) -> str:
        """Several words, with a mark where a text begins."""
        if self._text is None:
            return " ".join(f"#{it}" for it in tokens)
        # A text begins after BOS; without one, after the end of another.
        begin = self._text.eos_ids if self._text.bos_id is None else {self._text.bos_id}
        texts: list[list[int]] = [[]]
        for token in tokens:
            if token in begin:
                texts.append([])
            else:
                texts[-1].append(token)
        first, *others = (self._text.decode(each) for each in texts)
        return " ".join(said for said in (first, *(it for each in others for it in (START, each))) if said)

    def place(self, place: Place) -> str:
        """What stands before a word, after the beginning of its source where there is one."""
        before, shown = self.text(place.before), self.source(place.source)
        return f"{shown} → {before}" if shown else before

    def source(self, tokens: Sequence[int], most: int | None = SOURCE) -> str:
        """Its first words, without the EOS that ends it."""
        words = [it for it in tokens if self._text is None or it not in self._text.eos_ids]
        return self.text(words[:most]) + " …" * (len(words[:most]) < len(words))
