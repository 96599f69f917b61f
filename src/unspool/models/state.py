"""What a Transformer remembers of the rows that it is decoding.

Rows of different lengths stand flush right, so that one step writes one column for all of them; the
columns to the left of a shorter row are never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.nn.attention.key_values import KeyValues


@dataclass
class TransformerState:
    """Keys and values of every layer, and how many columns each row leaves empty on its left."""

    layers: list[KeyValues]
    pad_N: Tensor
    padded: bool
    prompt_N: Tensor
    """Which prompt each row began with: rows of one prompt agree on the first `prompt_length` columns."""
    prompt_length: int

    @property
    def length(self) -> int:
        """Columns filled, empty ones on the left included."""
        return self.layers[0].length if self.layers else 0

    def positions(self, new: int) -> Tensor:
        """(N, new): the place of each new token in its own row; (1, new) where all rows agree."""
        columns = torch.arange(self.length, self.length + new, device=self.pad_N.device)
        return (columns - self.pad_N[:, None]).clamp_(min=0) if self.padded else columns[None]

    def mask(self, new: int, window: int | None = None) -> Tensor | None:
        """(N, 1, new, all): where new tokens may look, in a window or anywhere; None: a causal triangle."""
        wide = window is None or self.length + new <= window
        if wide and not self.padded and (new == 1 or self.length == 0):
            return None
        query = torch.arange(self.length, self.length + new, device=self.pad_N.device)[:, None]
        key = torch.arange(self.length + new, device=self.pad_N.device)
        seen = (key >= self.pad_N[:, None, None]) & (key <= query)
        if not wide and window is not None:
            seen &= key > query - window
        # A padding column looks at itself: a softmax over nothing would be NaN.
        return (seen | (key == query)).unsqueeze(1)

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> TransformerState:
        """Reorder, repeat or drop rows."""
        prompt_M = self.prompt_N[rows_M]
        same = len(rows_M) == len(self.prompt_N) and torch.equal(prompt_M, self.prompt_N)
        for layer in self.layers:
            layer.select(rows_M, since=self.prompt_length if same else 0)
        pad_M = self.pad_N[rows_M]
        return TransformerState(self.layers, pad_M, bool(pad_M.any()), prompt_M, self.prompt_length)

    def truncate(self, length: int) -> TransformerState:
        """Forget the columns from `length` on."""
        for layer in self.layers:
            layer.truncate(length)
        return self
