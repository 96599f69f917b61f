"""Base classes of models made of other models: `Lockstep` combines several, `DelegatingModel` wraps one.

    state = (state₁, …, state_M),   step = join(step₁, …, step_M)

The models must share a vocabulary; the combination is rewindable if every part is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from unspool.arguments import Checked, shown
from unspool.decode.prompts import prompt_vocabulary
from unspool.interfaces import Abilities, Rewindable, Step, StepModel, TokenizerLike

REQUIRED = ("vocab_size", "context", "tokenizer", "start", "step")
"""Attributes of every StepModel; optional ones are in `Abilities`."""
COMPARED_TOKENS = 256
"""Number of tokens, spread over the vocabulary, that are compared between two tokenizers."""


class CombinedModel(Abilities):
    """A model made of parts, with their tokens and contexts; a subclass defines `start` and `step`."""

    @abstractmethod
    def parts(self) -> tuple[StepModel, ...]:
        """The models that it reads."""

    @property
    def vocab_size(self) -> int:
        return self.parts()[0].vocab_size

    @property
    def context(self) -> int | None:
        return min((part.context for part in self.parts() if part.context is not None), default=None)

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        return [(part, prompt) for part in self.parts()]

    @property
    def tokenizer(self) -> TokenizerLike | None:
        return next((part.tokenizer for part in self.parts() if part.tokenizer is not None), None)

    @property
    def eos_ids(self) -> frozenset[int]:
        """The end tokens of the first part with a tokenizer, or else of the first part."""
        parts = self.parts()
        return next((part for part in parts if part.tokenizer is not None), parts[0]).eos_ids

    @property
    def is_encoder_decoder(self) -> bool:
        return self.parts()[0].is_encoder_decoder

    @property
    def source_vocab_size(self) -> int | None:
        return self.parts()[0].source_vocab_size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        return next(
            (part.source_tokenizer for part in self.parts() if part.source_tokenizer is not None), None
        )


class DelegatingModel(CombinedModel):
    """A model with the predictions of another one."""

    def __init__(self, model: StepModel) -> None:
        self.model = model

    def parts(self) -> tuple[StepModel, ...]:
        return (self.model,)

    @property
    def output_matrix(self) -> Tensor | None:
        return self.model.output_matrix


def original(model: StepModel) -> StepModel:
    """The innermost model, which identifies the weights, for caches."""
    while isinstance(model, DelegatingModel):
        model = model.model
    return model


@dataclass(frozen=True)
class States:
    """The states of all models."""

    parts: tuple[Any, ...]

    def select(self, rows_M: Tensor) -> States:
        return States(tuple(part.select(rows_M) for part in self.parts))


class Lockstep(Checked, CombinedModel):
    """A StepModel that combines StepModels; a subclass defines its parts and how to join their Steps."""

    @abstractmethod
    def join(self, steps: Sequence[Step]) -> Step:
        """Combine the Steps of all parts, in their order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self.parts())

    @property
    def rewindable(self) -> Self | None:
        return None if any(part.rewindable is None for part in self.parts()) else self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, States]:
        return self._joined([part.start(prompts) for part in self.parts()])

    def step(self, state: States, tokens_N: Tensor) -> tuple[Step, States]:
        return self._joined(
            [part.step(past, tokens_N) for part, past in zip(self.parts(), state.parts, strict=True)]
        )

    def _joined(self, results: Sequence[tuple[Step, Any]]) -> tuple[Step, States]:
        return self.join([step for step, _ in results]), States(tuple(state for _, state in results))

    def extend(self, state: States, tokens_NT: Tensor) -> tuple[Step, States]:
        pairs = zip(self._rewindable(), state.parts, strict=True)
        return self._joined([part.extend(past, tokens_NT) for part, past in pairs])

    def rewind(self, state: States, tokens: int) -> States:
        pairs = zip(self._rewindable(), state.parts, strict=True)
        return States(tuple(part.rewind(past, tokens) for part, past in pairs))

    def _rewindable(self) -> list[Rewindable]:
        return [part.rewindable for part in self.parts() if part.rewindable is not None]


def declares_abilities(value: Any) -> bool:
    """True for a class that inherits from `interfaces.Abilities` (docs/adr/0009)."""
    return Abilities in type(value).__mro__


def check_model(model: Any) -> None:
    """Refuse values that are not StepModels."""
    if isinstance(model, str):
        raise TypeError(f"the model is the string {shown(model)}: load it first, us.load({shown(model)})")
    if isinstance(model, type):
        raise TypeError(f"the model is the class {model.__name__}: give a model such as us.load() returns")
    if not all(hasattr(model, name) for name in REQUIRED):
        labels = " It labels texts: use us.predict." if getattr(model, "labels", None) else ""
        raise TypeError(
            f"{shown(model)} cannot be decoded: it is not a model that generates text."
            f"{labels or ' Give a model such as us.load() returns.'}"
        )
    if not declares_abilities(model):
        raise TypeError(
            f"{shown(model)} does not declare its abilities: inherit them, class {type(model).__name__}"
            "(unspool.interfaces.Abilities)"
        )


def check_parts(models: Sequence[StepModel]) -> None:
    """Refuse models with different kinds of prompts or vocabularies."""
    for model in models:
        check_model(model)
    first = models[0]
    for place, model in enumerate(models[1:], start=1):
        kinds = [f"an {'encoder–decoder' if each.is_encoder_decoder else 'LM'}" for each in (first, model)]
        (ours, our_size), (theirs, their_size) = prompt_vocabulary(first), prompt_vocabulary(model)
        for verb, a, b, noun in (
            ("is", *kinds, ""),
            ("has", first.vocab_size, model.vocab_size, " tokens"),
            ("has", our_size, their_size, " source tokens"),
        ):
            if a != b:
                raise ValueError(
                    f"model 0 {verb} {a}{noun} and model {place} {verb} {b}{noun}: "
                    "combine models of one kind with one vocabulary, such as two sizes of one family"
                )
        _check_texts(first.tokenizer, model.tokenizer, place)
        if first.source_tokenizer is not None or model.source_tokenizer is not None:
            _check_texts(ours, theirs, place)


def _check_texts(first: TokenizerLike | None, other: TokenizerLike | None, place: int) -> None:
    if first is None or other is None:
        return
    # Compare the text of ids: two tokenizers may split text differently and still share a vocabulary.
    shared = min(first.vocab_size, other.vocab_size)
    for token in sorted({shared * i // COMPARED_TOKENS for i in range(COMPARED_TOKENS if shared else 0)}):
        ours, theirs = first.decode([token]), other.decode([token])
        # One of the tokenizers may hide a special token.
        if ours and theirs and ours != theirs:
            raise ValueError(
                f"token {token} is {ours!r} in model 0 and {theirs!r} in model {place}: "
                "combine models with the same tokenizer"
            )
