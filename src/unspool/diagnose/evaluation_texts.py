"""Choose the texts that a model is measured on.

In this order: the texts of a file; sentences of the artificial language that the run learnt, whose true
probabilities are known; the validation set of the run; text that the model generates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from unspool.data.known_languages.known_language import KnownLanguage
from unspool.data.known_languages.made_data import LanguageData
from unspool.data.preparation import prepare
from unspool.data.records import Layout
from unspool.decode.prompts import ids_of
from unspool.diagnose.overestimation import Distance, distance, sentences, speaks, true_probabilities
from unspool.diagnose.softmax_bottleneck import log_probabilities, own_pairs, own_text, rank_limit
from unspool.errors import note
from unspool.evaluate.teacher_forcing import Window, encode, fitting, forced, paired, windows
from unspool.evaluate.text_files import read_pairs, read_texts, run_recipe, text_records
from unspool.interfaces import StepModel

TokenPair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class EvaluationWindows:
    """Windows of text for teacher forcing."""

    source: str
    """Where the texts are from, in words."""
    windows: list[Window]
    language: KnownLanguage[Any] | None = None
    """The language that the texts are drawn from, if its probabilities are known."""

    def distance_to_truth(self, model: StepModel, contexts: int) -> Distance | None:
        """Compare the model with the true distributions in these contexts."""
        if self.language is None:
            return None
        logp_CV = log_probabilities(model, self.windows, contexts)
        return distance(logp_CV, true_probabilities(self.language, self.windows, contexts), rank_limit(model))


@dataclass(frozen=True)
class Continuations:
    """Pairs of a prompt (or source) and the reference text that follows it, as token ids."""

    source: str
    """Where the texts are from, in words."""
    pairs: Sequence[TokenPair]
    language: KnownLanguage[Any] | None = None
    """The language to draw pairs from, if its probabilities are known; `pairs` is empty then."""

    def take(self, count: int, seed: int = 0) -> Continuations:
        """Return the first `count` pairs, or `count` sentences drawn from the language."""
        if self.language is not None:
            rng = Random(seed)
            sentences = (self.language.sample(rng) for _ in range(count))
            pairs: list[TokenPair] = [((self.language.bos,), (*row, self.language.eos)) for row in sentences]
            return replace(self, pairs=pairs)
        if not self.pairs:
            raise ValueError(
                f"{self.source}: every text ends within its prompt; give longer texts or a smaller --prompt"
            )
        return replace(self, pairs=self.pairs[:count])


def find_windows(
    model: StepModel,
    run: Path,
    path: Path | None,
    contexts: int,
    seed: int,
    layout: Layout | None = None,
) -> EvaluationWindows:
    """Find texts with about `contexts` positions: in the file at `path`, for the run, or generated."""
    if model.is_encoder_decoder:
        if path is not None:
            sources, targets = read_pairs(path, layout)
            return EvaluationWindows(str(path), forced(model, targets, sources, cut=True))
        pairs = _validation_pairs(model, run)
        if pairs:
            return EvaluationWindows("the run's validation pairs", paired(model, pairs, cut=True))
        return EvaluationWindows("its answers to random words", own_pairs(model, contexts, seed))
    if path is not None:
        return EvaluationWindows(str(path), forced(model, read_texts(path, layout)))
    language = find_language(model, run)
    if language is not None:
        rows = sentences(language, contexts, seed, model.context)
        return EvaluationWindows("sentences of its language", rows, language)
    generated = windows(own_text(model, contexts, seed), fitting(model, None))
    return EvaluationWindows("its own words", generated)


def find_continuations(
    model: StepModel,
    run: Path,
    path: Path | None,
    prompt_tokens: int,
    max_tokens: int,
    layout: Layout | None = None,
) -> Continuations:
    """Find reference texts: in the file at `path`, else the language or validation set of the run.

    Texts are split into pieces of at most `max_tokens` tokens, of which the first `prompt_tokens` are the
    prompt. An encoder–decoder gets the sources of pairs as prompts.
    """
    if path is not None and model.is_encoder_decoder:
        sources, targets = read_pairs(path, layout)
        parts = forced(model, targets, sources, cut=True)
        return Continuations(
            str(path), [(part.tokens[: part.first], part.tokens[part.first :]) for part in parts]
        )
    if path is not None:
        rows = encode(model, read_texts(path, layout))
        pieces = _split(rows, prompt_tokens, max_tokens, _bos(model))
        short = sum(len(row) <= prompt_tokens for row in rows)
        if short and pieces:
            note(f"{path}: left out {short} of {len(rows)} texts, which end within --prompt {prompt_tokens}")
        return Continuations(str(path), pieces)
    language = None if model.is_encoder_decoder else find_language(model, run)
    if language is not None:
        return Continuations("sentences of its language", [], language)
    pairs = _validation_pairs(model, run)
    if not pairs:
        raise ValueError("no text to measure on: give --text, or a run folder that has a validation set")
    if model.is_encoder_decoder:
        return Continuations("the run's validation pairs", list(pairs))
    pieces = _split([row for _, row in pairs], prompt_tokens, max_tokens, _bos(model))
    return Continuations("the run's validation texts", pieces)


def find_prompts(
    model: StepModel,
    run: Path,
    path: Path | None,
    count: int,
    prompt_tokens: int,
    max_tokens: int,
    layout: Layout | None = None,
    seed: int = 0,
) -> Continuations:
    """Find `count` prompts to continue.

    A prompt of a file is used whole, a text up to its first `prompt_tokens` tokens. Anything else is found
    and split as by `find_continuations`.
    """
    layout = Layout() if layout is None else layout
    if path is None or model.is_encoder_decoder or layout.document == "file":
        continuations = find_continuations(model, run, path, prompt_tokens, max_tokens, layout)
        return continuations.take(count, seed)
    pairs: list[TokenPair] = []
    for index, record in enumerate(text_records(path, layout, count)):
        try:
            ids = ids_of(model, record.prompt() if record.is_prompt else record.text(), index)
        except ValueError as error:
            where = "" if str(error).startswith(record.where) else f"{record.where}: "
            raise ValueError(f"{where}{error}") from None
        pairs.append((ids if record.is_prompt else ids[:prompt_tokens], ()))
    return Continuations(str(path), pairs)


def find_language(model: StepModel, run: Path) -> KnownLanguage[Any] | None:
    """Return the artificial language that the run learnt word by word; None if it learnt something else."""
    recipe = run_recipe(run)
    if recipe is None or not isinstance(recipe.data, LanguageData):
        return None
    if speaks(model, recipe.data.known):
        return recipe.data.known
    note("the model is not compared with the truth: its tokens are not the words of the language")
    return None


def _bos(model: StepModel) -> tuple[int, ...]:
    """Return the BOS token if the tokenizer adds one to every text."""
    ids = () if model.tokenizer is None else tuple(model.tokenizer.encode(""))
    return ids if model.tokenizer is not None and ids == (model.tokenizer.bos_id,) else ()


def _split(
    rows: Sequence[Sequence[int]], prompt_tokens: int, max_tokens: int, bos: tuple[int, ...]
) -> list[TokenPair]:
    """Split rows into pieces of at most `max_tokens`, each with BOS, and each piece into prompt and rest."""
    size = max(1, max_tokens - len(bos))
    pieces = []
    for row in rows:
        bare = row[len(bos) :] if tuple(row[: len(bos)]) == bos else row
        pieces += [(*bos, *bare[start : start + size]) for start in range(0, len(bare), size)]
    return [(piece[:prompt_tokens], piece[prompt_tokens:]) for piece in pieces if len(piece) > prompt_tokens]


def _validation_pairs(model: Any, run: Path) -> list[tuple[list[int], list[int]]]:
    recipe = run_recipe(run)
    if recipe is None:
        return []
    try:
        batches = prepare(recipe.data, model.tokenizer, recipe.batches, recipe.seed, run / "data").valid
    except (OSError, ValueError) as error:
        note(f"cannot read the run's pairs: {error}")
        return []
    pairs = []
    for batch in batches:
        # A language model's row begins with its first input, and has no source.
        begins = batch.inputs_NT[:, :1].tolist() if batch.source_NS is None else [[]] * len(batch.lengths_N)
        for source, begin, target in zip(batch.sources(), begins, batch.targets(), strict=True):
            pairs.append((source, [*begin, *target]))
    return pairs
