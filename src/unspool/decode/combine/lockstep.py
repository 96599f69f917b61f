"""Several models that read the same rows side by side: what a contrast and an ensemble have in common.

    state = (state₁, …, state_M),   step = join(step₁, …, step_M)

The models must mean the same text by the same token id; the whole is rewindable if every part is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from unspool.decode.arguments import declares_abilities, shown
from unspool.decode.prompts import reading
from unspool.interfaces import Abilities, Rewindable, Step, StepModel, TokenizerLike

NEEDED = ("vocab_size", "context", "tokenizer", "start", "step")
"""What every model that is decoded has; what only some have is in `Abilities`."""
SPREAD = 256
"""How many ids, spread over the whole vocabulary, are looked at when two of them are compared."""


@dataclass(frozen=True)
class States:
    """What each of the models remembers."""

    parts: tuple[Any, ...]

    def select(self, rows_M: Tensor) -> States:
        """Reorder, repeat or drop the rows of every part."""
        return States(tuple(part.select(rows_M) for part in self.parts))


class Lockstep(Abilities):
    """A StepModel made of StepModels; a subclass says which, and how their Steps become one."""

    @abstractmethod
    def parts(self) -> tuple[StepModel, ...]:
        """The models, in the order in which `join` is given their Steps."""

    @abstractmethod
    def join(self, steps: Sequence[Step]) -> Step:
        """One Step from the Steps of all parts about the same rows."""

    def __post_init__(self) -> None:
        check_parts(self.parts())

    @property
    def vocab_size(self) -> int:
        """The same for all parts."""
        return self.parts()[0].vocab_size

    @property
    def source_vocab_size(self) -> int | None:
        """The same of prompts."""
        return self.parts()[0].source_vocab_size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """The first tokenizer of prompts that a part has."""
        return next(
            (part.source_tokenizer for part in self.parts() if part.source_tokenizer is not None), None
        )

    @property
    def rewindable(self) -> Self | None:
        """Itself, where every part is."""
        return None if any(part.rewindable is None for part in self.parts()) else self

    @property
    def context(self) -> int | None:
        """The smallest of the parts'."""
        return min((part.context for part in self.parts() if part.context is not None), default=None)

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        """Every part, the prompt."""
        return [(part, prompt) for part in self.parts()]

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the parts do, all or none of them."""
        return self.parts()[0].is_encoder_decoder

    @property
    def tokenizer(self) -> TokenizerLike | None:
        """The first tokenizer that a part has."""
        return next((part.tokenizer for part in self.parts() if part.tokenizer is not None), None)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Those of the first part that has a tokenizer; without any tokenizer, those of the first part."""
        parts = self.parts()
        return next((part for part in parts if part.tokenizer is not None), parts[0]).eos_ids

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, States]:
        """Every part reads the prompts."""
        return self._joined([part.start(prompts) for part in self.parts()])

    def step(self, state: States, tokens_N: Tensor) -> tuple[Step, States]:
        """Every part appends the same tokens."""
        return self._joined(
            [part.step(past, tokens_N) for part, past in zip(self.parts(), state.parts, strict=True)]
        )

    def _joined(self, said: Sequence[tuple[Step, Any]]) -> tuple[Step, States]:
        return self.join([step for step, _ in said]), States(tuple(state for _, state in said))

    def extend(self, state: States, tokens_NT: Tensor) -> tuple[Step, States]:
        """Every part appends the same tokens."""
        pairs = zip(self._rewindable(), state.parts, strict=True)
        return self._joined([part.extend(past, tokens_NT) for part, past in pairs])

    def rewind(self, state: States, tokens: int) -> States:
        """Every part forgets as many tokens."""
        pairs = zip(self._rewindable(), state.parts, strict=True)
        return States(tuple(part.rewind(past, tokens) for part, past in pairs))

    def _rewindable(self) -> list[Rewindable]:
        return [part.rewindable for part in self.parts() if part.rewindable is not None]


def check_model(model: Any) -> None:
    """Refuse what cannot be decoded token by token."""
    if isinstance(model, str):
        raise TypeError(f"the model is the string {shown(model)}: load it first, us.load({shown(model)})")
    if isinstance(model, type):
        raise TypeError(f"the model is the class {model.__name__}: give a model such as us.load() returns")
    if not all(hasattr(model, name) for name in NEEDED):
        labels = " It labels texts: use us.predict." if getattr(model, "labels", None) else ""
        raise TypeError(
            f"{shown(model)} cannot be decoded, because it does not say what follows a text token by token."
            f"{labels or ' Give a model such as us.load() returns.'}"
        )
    if not declares_abilities(model):
        raise TypeError(
            f"{shown(model)} does not say what it can do besides. Write class {type(model).__name__}"
            "(unspool.interfaces.Abilities), which says that it can do nothing more."
        )


def check_parts(models: Sequence[StepModel]) -> None:
    """Refuse models that read a prompt or a token id differently, before any of them is run."""
    for model in models:
        check_model(model)
    first = models[0]
    for place, model in enumerate(models[1:], start=1):
        if model.is_encoder_decoder != first.is_encoder_decoder:
            does = ["continues its prompt", "answers it as a source"]
            raise ValueError(
                f"model 0 {does[first.is_encoder_decoder]} and model {place} "
                f"{does[model.is_encoder_decoder]}: what one of them writes is no text of the other. "
                " Take two language models, or two encoder–decoders."
            )
        if model.vocab_size != first.vocab_size:
            raise ValueError(
                f"model 0 has {first.vocab_size} tokens and model {place} has {model.vocab_size}: models can "
                "only be combined over one vocabulary. Take two sizes of one model family."
            )
        (ours, our_size), (theirs, their_size) = reading(first), reading(model)
        if our_size != their_size:
            raise ValueError(
                f"model 0 has {our_size} tokens for sources and model {place} has {their_size}: models can "
                "only be combined over one vocabulary."
            )
        if first.tokenizer is not None and model.tokenizer is not None:
            _check_texts(first.tokenizer, model.tokenizer, place)
            if (
                ours is not None
                and theirs is not None
                and (ours, theirs) != (first.tokenizer, model.tokenizer)
            ):
                _check_texts(ours, theirs, place)


def _check_texts(first: TokenizerLike, other: TokenizerLike, place: int) -> None:
    # What is compared is what ids mean: two tokenizers may cut text differently, or begin it differently, and
    # still share a vocabulary.
    shared = min(first.vocab_size, other.vocab_size)
    for token in sorted({shared * i // SPREAD for i in range(SPREAD if shared else 0)}):
        ours, theirs = first.decode([token]), other.decode([token])
        # A special token may be shown by one tokenizer and left out by the other.
        if ours and theirs and ours != theirs:
            raise ValueError(
                f"token {token} is {ours!r} to model 0 and {theirs!r} to model {place}: models can only be "
                "combined over one vocabulary. Take two models that were made with the same tokenizer."
            )
