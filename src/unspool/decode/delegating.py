"""A model in another's place: what it says of itself is what the other would."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from unspool.interfaces import Abilities, StepModel, TokenizerLike


class SameTokens(Abilities):
    """Reads and says the tokens of `model`. What it says of them is a subclass's: `start` and `step`."""

    model: StepModel

    @property
    def vocab_size(self) -> int:
        """The model's."""
        return self.model.vocab_size

    @property
    def context(self) -> int | None:
        """The model's."""
        return self.model.context

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        """The model, its prompt."""
        return [(self.model, prompt)]

    @property
    def tokenizer(self) -> TokenizerLike | None:
        """The model's."""
        return self.model.tokenizer

    @property
    def eos_ids(self) -> frozenset[int]:
        """The model's."""
        return self.model.eos_ids

    @property
    def is_encoder_decoder(self) -> bool:
        """The model's."""
        return self.model.is_encoder_decoder

    @property
    def source_vocab_size(self) -> int | None:
        """The model's."""
        return self.model.source_vocab_size

    @property
    def source_tokenizer(self) -> TokenizerLike | None:
        """The model's."""
        return self.model.source_tokenizer


class DelegatingModel(SameTokens):
    """Says of them what the model says, too."""

    def __init__(self, model: StepModel) -> None:
        self.model = model

    @property
    def output_matrix(self) -> Tensor | None:
        """The model's."""
        return self.model.output_matrix


def original(model: StepModel) -> StepModel:
    """The model that this one stands in for, or itself: by whom to remember what was made of its weights."""
    while isinstance(model, DelegatingModel):
        model = model.model
    return model
