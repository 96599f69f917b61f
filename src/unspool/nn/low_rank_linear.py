"""A linear layer that stands still, and a product of two thin matrices beside it that learns.

    y = W x + (α/r)·B A x,      A ∈ R^{r×I} random,  B ∈ R^{O×r} = 0 at the beginning

Hu et al. 2022, §4.1, eq. 3 (papers.bib: hu2022lora). It begins as W alone, learns r·(I + O) numbers, not
I·O, and merges into one matrix, W' = W + (α/r)·B A, which costs nothing more when it is used.
Differs from the paper: W may be several matrices above each other ([W^Q; W^K; W^V]), which share their A.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.nn.linear import Linear, linear as product


class LowRankLinear(Linear):
    """W is the very parameter of the layer that it takes the place of."""

    def __init__(self, linear: Linear, rank: int, alpha: float, dropout: float = 0.0) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.dropout = nn.Dropout(dropout)
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.uniform_(self.lora_a, -(linear.in_features**-0.5), linear.in_features**-0.5)
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        thin = F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)
        return product(x, self.weight, self.bias) + self.scale * thin

    @torch.no_grad()
    def merged_weight(self) -> Tensor:
        """W' = W + (α/r)·B A, summed in double precision: rounded once."""
        product = self.lora_b.double() @ self.lora_a.double()
        return (self.weight.double() + self.scale * product).to(self.weight.dtype)

    @torch.no_grad()
    def merged(self) -> Linear:
        """The plain layer that says the same."""
        with torch.device("meta"):
            linear = Linear(self.in_features, self.out_features, self.bias is not None)
        linear.weight, linear.bias = nn.Parameter(self.merged_weight()), self.bias
        linear.weight.requires_grad_(True)
        if linear.bias is not None:
            linear.bias.requires_grad_(True)
        return linear.train(self.training)
