"""The plain output layer.

    log p(y = i | h) = hᵀe_i + b_i − logsumexp_j (hᵀe_j + b_j)

The matrix of all e_i is the head's own, or the input embedding (tied: Press & Wolf 2017, §2,
papers.bib: press2017using). It is what basis-aware sampling needs to know of a model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unspool.nn.layout import Layout


class Softmax(nn.Module):
    """Softmax over inner products with one vector for each word."""

    def __init__(self, width: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.layout = Layout()

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return torch.log_softmax(self.layout.linear(hidden, self.weight, self.bias).float(), dim=-1)


class TiedSoftmax(nn.Module):
    """The same, with the rows of an embedding as its vectors. It owns no weights."""

    def __init__(self, embed: nn.Embedding) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, so that torch does not register the embedding twice
        self.layout = Layout()

    @property
    def weight(self) -> Tensor:
        """(V, D): the embedding's."""
        return self._embed[0].weight

    def forward(self, hidden: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return torch.log_softmax(self.layout.linear(hidden, self.weight).float(), dim=-1)
