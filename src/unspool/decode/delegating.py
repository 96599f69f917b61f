"""Models made of other models: what they have in common with their parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from unspool.interfaces import Abilities, StepModel, TokenizerLike


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
