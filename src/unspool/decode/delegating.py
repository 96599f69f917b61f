"""Models that delegate to another model, and keep its tokens."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from unspool.interfaces import Abilities, StepModel, TokenizerLike


class SameTokens(Abilities):
    """A model with the tokens and context of `model`; a subclass defines `start` and `step`."""

    model: StepModel

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def context(self) -> int | None:
        return self.model.context

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        return [(self.model, prompt)]

    @property
    def tokenizer(self) -> TokenizerLike | None:
        return self.model.tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        return self.model.eos_ids

    @property
    def is_encoder_decoder(self) -> bool:
        return self.model.is_encoder_decoder

    @property
    def source_vocab_size(self) -> int | None:
        return self.model.source_vocab_size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        return self.model.source_tokenizer


class DelegatingModel(SameTokens):
    """A model with the predictions of another one."""

    def __init__(self, model: StepModel) -> None:
        self.model = model

    @property
    def output_matrix(self) -> Tensor | None:
        return self.model.output_matrix


def original(model: StepModel) -> StepModel:
    """The innermost model, which identifies the weights, for caches."""
    while isinstance(model, DelegatingModel):
        model = model.model
    return model
