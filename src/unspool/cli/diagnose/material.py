"""What a model is measured on: a text, sentences of the language that it learnt, pairs, or its own words."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from unspool.cli.diagnose.texts import add_text_options, layout_of_args, read_pairs, read_texts, text_records
from unspool.cli.output import tell
from unspool.cli.parser import natural, positive
from unspool.data.records import Layout

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.data.known_languages.known_language import KnownLanguage
    from unspool.diagnose.overestimation import Distance
    from unspool.evaluate.teacher_forcing import Window
    from unspool.interfaces import StepModel
    from unspool.training import Recipe


@dataclass(frozen=True)
class Material:
    """Windows to read, and where they are from."""

    whose: str
    parts: list[Window]
    language: KnownLanguage[Any] | None = None
    """Whose sentences they are, where their truth is known."""

    def beside_truth(self, model: StepModel, contexts: int) -> Distance | None:
        """How far the model is from the truth in these contexts."""
        if self.language is None:
            return None
        from unspool.diagnose.overestimation import distance, true_probabilities
        from unspool.diagnose.softmax_bottleneck import log_probabilities, rank_limit

        logp_CV = log_probabilities(model, self.parts, contexts)
        return distance(logp_CV, true_probabilities(self.language, self.parts, contexts), rank_limit(model))


@dataclass(frozen=True)
class GoldTexts:
    """Texts that were written by others: a prompt, or a source, and what follows it."""

    whose: str
    texts: Sequence[tuple[Sequence[int], Sequence[int]]]
    language: KnownLanguage[Any] | None = None
    """Whose truth says what should follow any text."""


def gold_material(model: StepModel, args: argparse.Namespace, room: int) -> GoldTexts:
    """The texts of --text, or what the run was validated on, in pieces of `room` tokens."""
    from unspool.evaluate.teacher_forcing import encode, forced

    folder, path, prompt = Path(args.model), args.text, args.prompt
    if path is not None and model.is_encoder_decoder:
        sources, targets = read_pairs(path, layout_of_args(args))
        found = [
            (it.tokens[: it.first], it.tokens[it.first :]) for it in forced(model, targets, sources, cut=True)
        ]
        return GoldTexts(str(path), found)
    if path is not None:
        rows = encode(model, read_texts(path, layout_of_args(args)))
        pieces = _pieces(rows, prompt, room, _begin(model))
        short = sum(len(row) <= prompt for row in rows)
        if short and pieces:
            _note(f"{path}: {short} of {len(rows)} texts are not longer than --prompt, {prompt}: left out")
        return GoldTexts(str(path), pieces)
    language = None if model.is_encoder_decoder else learnt_language(model, folder)
    if language is not None:
        return GoldTexts("sentences of its language", [], language)
    pairs = _validation_pairs(model, folder)
    if not pairs:
        raise ValueError(
            "there is no text to measure on: give --text (a run folder has its own only if it was validated)"
        )
    if model.is_encoder_decoder:
        return GoldTexts("the run's validation pairs", list(pairs))
    rows = [tuple(row) for _, row in pairs]
    return GoldTexts("the run's validation texts", _pieces(rows, prompt, room, _begin(model)))


def add_gold_options(parser: argparse.ArgumentParser, texts: int) -> None:
    """Which texts a model is set beside."""
    add_text_options(parser, default="the run's validation set")
    parser.add_argument(
        "--texts", type=positive, default=texts, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt", type=positive, default=16, metavar="N", help="tokens that are given (default: 16)"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)")


def gold_texts(model: StepModel, args: argparse.Namespace, room: int) -> GoldTexts:
    """What the options of `add_gold_options` ask for; of a language, sentences drawn from it."""
    if args.text:  # what cannot be read must fail before the work
        args.text.open("rb").close()
    found = gold_material(model, args, room)
    if found.language is not None:
        dice = Random(args.seed)
        said = (found.language.sample(dice) for _ in range(args.texts))
        texts = [((found.language.bos,), (*row, found.language.eos)) for row in said]
        return GoldTexts(found.whose, texts, found.language)
    if not found.texts:
        raise ValueError(
            f"{found.whose}: no text is longer than the {args.prompt} tokens of its prompt; give longer "
            "ones, or a smaller --prompt"
        )
    return GoldTexts(found.whose, found.texts[: args.texts])


def own_prompts(model: StepModel, args: argparse.Namespace, room: int) -> GoldTexts:
    """Prompts to continue: those of a file whole, of a text its first --prompt tokens; else as `gold_texts`.

    Each line is one prompt, however short; a file that is one text is cut into pieces of `room` tokens.
    """
    layout = layout_of_args(args)
    if args.text is None or model.is_encoder_decoder or layout.document == "file":
        return gold_texts(model, args, room)
    from unspool.decode.prompts import ids_of

    texts: list[tuple[Sequence[int], Sequence[int]]] = []
    for place, record in enumerate(text_records(args.text, layout, args.texts)):
        try:
            said = ids_of(model, record.prompt() if record.is_prompt else record.text(), place)
        except ValueError as error:
            where = "" if str(error).startswith(record.where) else f"{record.where}: "
            raise ValueError(f"{where}{error}") from None
        texts.append((said if record.is_prompt else said[: args.prompt], ()))
    return GoldTexts(str(args.text), texts)


def _begin(model: StepModel) -> tuple[int, ...]:
    """What the model's prompts begin with: BOS, or nothing."""
    found = () if model.tokenizer is None else tuple(model.tokenizer.encode(""))
    return found if model.tokenizer is not None and found == (model.tokenizer.bos_id,) else ()


def _pieces(
    rows: Sequence[Sequence[int]], prompt: int, room: int, begin: tuple[int, ...] = ()
) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Rows cut to at most `room` tokens, each piece as a prompt of so many tokens and what follows it.

    Every piece begins as a prompt of the model does: with `begin`, which counts in both numbers.
    """
    size = max(1, room - len(begin))
    cut = []
    for row in rows:
        bare = row[len(begin) :] if tuple(row[: len(begin)]) == begin else row
        cut += [(*begin, *bare[at : at + size]) for at in range(0, len(bare), size)]
    return [(it[:prompt], it[prompt:]) for it in cut if len(it) > prompt]


def find_material(
    model: StepModel, folder: Path, path: Path | None, contexts: int, seed: int, layout: Layout | None = None
) -> Material:
    """The texts at `path`; else what suits the run in `folder`, if it is one; else the model's own words."""
    from unspool.diagnose.softmax_bottleneck import own_text
    from unspool.evaluate.teacher_forcing import fitting, forced, windows

    if model.is_encoder_decoder:
        return _pairs(model, folder, path, contexts, seed, layout)
    if path is not None:
        return Material(str(path), forced(model, read_texts(path, layout)))
    language = learnt_language(model, folder)
    if language is not None:
        from unspool.diagnose.overestimation import sentences

        said = sentences(language, contexts, seed, model.context)
        return Material("sentences of its language", said, language)
    return Material("its own words", windows(own_text(model, contexts, seed), fitting(model, None)))


def learnt_language(model: StepModel, folder: Path) -> KnownLanguage[Any] | None:
    """The language that the run learnt, word by word; None where it learnt anything else."""
    from unspool.data.known_languages.made_data import Language
    from unspool.diagnose.overestimation import speaks

    recipe = _recipe(folder)
    if recipe is None or not isinstance(recipe.data, Language):
        return None
    if speaks(model, recipe.data.known):
        return recipe.data.known
    _note("the model is not set beside the truth, for its tokens are not the words of the language")
    return None


def _pairs(
    model: Any, folder: Path, path: Path | None, contexts: int, seed: int, layout: Layout | None
) -> Material:
    """What an encoder–decoder reads."""
    from unspool.diagnose.softmax_bottleneck import own_pairs
    from unspool.evaluate.teacher_forcing import forced, paired

    if path is not None:
        sources, targets = read_pairs(path, layout)
        return Material(str(path), forced(model, targets, sources, cut=True))
    found = _validation_pairs(model, folder)
    if found:
        return Material("the run's validation pairs", paired(model, found, cut=True))
    return Material("its answers to random words", own_pairs(model, contexts, seed))


def _validation_pairs(model: Any, folder: Path) -> list[tuple[list[int], list[int]]]:
    from unspool.data.preparation import prepare

    recipe = _recipe(folder)
    if recipe is None:
        return []
    try:
        batches = prepare(recipe.data, model.tokenizer, recipe.batches, recipe.seed, folder / "data").valid
    except (OSError, ValueError) as error:
        _note(f"the run's pairs cannot be read: {error}")
        return []
    return list(_rows(batches))


def _rows(batches: Iterable[Batch]) -> Iterable[tuple[list[int], list[int]]]:
    for batch in batches:
        if batch.source_NS is None or batch.source_lengths_N is None:
            first = batch.inputs_NT[:, 0].tolist()
            for row, (begin, length) in enumerate(zip(first, batch.lengths_N.tolist(), strict=True)):
                yield [], [begin, *batch.targets_NU[row, :length].tolist()]
            continue
        sizes = zip(batch.source_lengths_N.tolist(), batch.lengths_N.tolist(), strict=True)
        for row, (source, target) in enumerate(sizes):
            yield batch.source_NS[row, :source].tolist(), batch.targets_NU[row, :target].tolist()


def _recipe(folder: Path) -> Recipe | None:
    from unspool.training import read_recipe

    path = folder / "recipe.toml"
    if not path.is_file():
        return None
    try:
        return read_recipe(path)
    except ValueError as error:
        _note(f"the run's recipe cannot be read: {error}")
        return None


def _note(said: str) -> None:
    tell(said)
