"""One forward pass for all that is minimised: what several objectives ask of a model is computed once.

    h(x), α(x) = model(x)    the first time that somebody asks for the batch, and looked up from then on

A cross-entropy asks for hidden vectors, a loss on attention for α, another loss for hidden vectors again: all
of the same batch, with the same dropout. Where anybody wants α, the pass is one that tells. A pass without
gradients, such as the first one of scheduled sampling, is not kept. A model that
fills hidden places reads the batch as the objective has hidden them, which is to ask first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.protocols import AttentionStack


class SharedPass:
    """A model that reads `batch` once, however often it is asked; in all else the model itself."""

    def __init__(self, model: Any, batch: Batch, *, watched: bool) -> None:
        self._model, self._batch, self._watched = model, batch, watched
        self._hidden: Tensor | None = None
        self._stacks: tuple[AttentionStack, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _shares(self, batch: Batch) -> bool:
        """Whether the pass over this batch is the shared one."""
        return batch is self._batch and (self._hidden is not None or torch.is_grad_enabled())

    def hidden_for(self, batch: Batch) -> Tensor:
        """The model's own."""
        if not self._shares(batch):
            hidden_NUD: Tensor = self._model.hidden_for(batch)
            return hidden_NUD
        if self._hidden is None and self._watched:
            self._hidden, self._stacks = self._model.attention_reading.read_attention(batch)
        elif self._hidden is None:
            self._hidden = self._model.hidden_for(batch)
        assert self._hidden is not None
        return self._hidden

    @property
    def infilling(self) -> Any:
        """Itself, where the model has the ability."""
        return None if self._model.infilling is None else self

    def read_hidden(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The model's own, of the batch with hidden places: that is the pass that all share."""
        stacks: list[AttentionStack] = []
        read = self._model.infilling.read_hidden
        found: tuple[Tensor, Tensor | None] = read(batch, stacks) if self._watched else read(batch)
        self._hidden, self._stacks = found[0], tuple(stacks)
        return found

    @property
    def attention_reading(self) -> Any:
        """Itself, where the model has the ability."""
        return None if self._model.attention_reading is None else self

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """The model's own."""
        if self._shares(batch) and self._watched:
            return self.hidden_for(batch), self._stacks
        found: tuple[Tensor, tuple[AttentionStack, ...]] = self._model.attention_reading.read_attention(batch)
        return found
