"""A matrix product that is made as the number of rows wants it, from weights that lie in memory once.

    y_NO = x_NI · W_OIᵀ + b_O

A product of a few rows is bound by memory, and the way that torch has for many reads W slowly. Without
gradients on a CPU it is therefore put to torch in other words (side by side in `benchmarks/products.py`):

    small W          F.linear
    one row          two halves of W times x, a batch of two: nearly twice as fast as F.linear
    a few rows       (W · xᵀ)ᵀ
    otherwise        F.linear
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DirectCall(nn.Module):
    """Put before torch's class: `class LayerNorm(DirectCall, nn.LayerNorm)`.

    Modules that are called without torch's detour while nobody listens.

    torch looks for hooks, tracing and more before it calls `forward`. While one token of a small model is
    decoded that is a good part of the time; so it is left out where there are neither gradients nor hooks.
    """

    def __call__(self, *args: Any, **named: Any) -> Any:
        """`forward`, and whatever hooks there are."""
        if torch.is_grad_enabled() or self._forward_hooks or self._forward_pre_hooks:
            return super().__call__(*args, **named)
        return self.forward(*args, **named)


FEW = 4
"""Rows for each thread, up to which W stands on the left."""
SMALL = 2**18
"""Numbers of W, up to which caches may hold it: other words then take longer than they save."""


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x · Wᵀ + b: (…, I) → (…, O)."""
    if weight_OI.numel() <= SMALL:
        return F.linear(x, weight_OI, bias_O)
    if torch.is_grad_enabled() or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight_OI, bias_O)
    outputs, inputs = weight_OI.shape
    rows = x.numel() // inputs
    if not 0 < rows <= FEW * torch.get_num_threads() or not _is_plain(weight_OI):
        return F.linear(x, weight_OI, bias_O)
    y = (
        _one_row(x, weight_OI)
        if rows == 1
        else torch.mm(weight_OI, x.reshape(rows, inputs).t()).t().contiguous()
    )
    y = y.view(*x.shape[:-1], outputs)
    return y if bias_O is None else y.add_(bias_O)


def _is_plain(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.is_contiguous()


def _one_row(x: Tensor, weight_OI: Tensor) -> Tensor:
    outputs, inputs = weight_OI.shape
    half = (outputs + 1) // 2  # of an odd number the halves have a row in common
    halves_2HI = weight_OI.as_strided((2, half, inputs), ((outputs - half) * inputs, inputs, 1))
    # Strides of a transposed row: those of a column would send it to a kernel that is seven times slower.
    x_2I1 = x.reshape(1, inputs).t().expand(2, inputs, 1)
    y_2H = torch.bmm(halves_2HI, x_2I1).view(2, half)
    return y_2H if outputs == 2 * half else torch.cat((y_2H[0], y_2H[1, 1:]))


class Linear(DirectCall, torch.nn.Linear):
    """torch's linear layer, with its product made as the number of rows wants it."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)

    def __call__(self, x: Tensor) -> Tensor:
        """`forward`, and whatever hooks there are."""
        if torch.is_grad_enabled() or self._forward_hooks or self._forward_pre_hooks:
            out: Tensor = super().__call__(x)
            return out
        return self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        held = self._parameters  # much quicker than self.weight, which torch looks for in several places
        return linear(x, held["weight"], held["bias"])  # type: ignore[arg-type]


class LowRankLinear(Linear):
    """W is the very parameter of the layer that it takes the place of.

    A linear layer that stands still, and a product of two thin matrices beside it that learns.

        y = W x + (α/r)·B A x,      A ∈ R^{r×I} random,  B ∈ R^{O×r} = 0 at the beginning

    Hu et al. 2022, §4.1, eq. 3 (papers.bib: hu2022lora). It begins as W alone, learns r·(I + O) numbers, not
    I·O, and merges into one matrix, W' = W + (α/r)·B A, which costs nothing more when it is used.
    Differs from the paper: W may be several matrices above each other ([W^Q; W^K; W^V]), which share their A.
    """

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
        return linear(x, self.weight, self.bias) + self.scale * thin

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
