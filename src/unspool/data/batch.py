"""Rows to learn from, side by side."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows to learn from. Rows are padded on the right; padding has weight 0."""

    inputs_NT: Tensor
    """What the model reads (a language model: BOS and every token but the last)."""
    lengths_N: Tensor
    """How many of a row's inputs are real."""
    targets_NU: Tensor
    """What it should say: U = T for a language model or a tagger, U = 1 for a classifier."""
    weights_NU: Tensor
    """How much each target counts: 0 for padding."""
    source_NS: Tensor | None = None
    """What the encoder of an encoder–decoder reads."""
    source_lengths_N: Tensor | None = None
    follows: int | None = None
    """The number of the batch whose rows these rows go on with, where a model carries what it remembers."""
    begin_NLS: Tensor | None = None
    """What it remembered at the end of that batch."""

    @property
    def weight(self) -> float:
        """How many targets count, all in all."""
        return float(self.weights_NU.sum())

    def to(self, device: Any) -> Batch:
        """The same on another device."""
        found = {it.name: getattr(self, it.name) for it in fields(self)}
        return Batch(**{name: it.to(device) if hasattr(it, "to") else it for name, it in found.items()})
