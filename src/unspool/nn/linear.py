"""Linear layers: a matrix product that is fast for few rows on a CPU, and LoRA.

    y_NO = x_NI · W_OIᵀ + b_O

A product of few rows is limited by memory bandwidth, and F.linear reads W slowly then. Without gradients on
a CPU the same product is expressed differently (compared in `benchmarks/products.py`):

    small W          F.linear
    one row          bmm of two halves of W with x, nearly twice as fast as F.linear
    a few rows       (W · xᵀ)ᵀ
    otherwise        F.linear
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DirectCall(nn.Module):
    """Mixin that calls `forward` directly if there are neither gradients nor hooks.

    torch checks for hooks, tracing and more before it calls `forward`, which is a noticeable part of the
    time of one step of a small model. Use it as the first base: `class LayerNorm(DirectCall,
    nn.LayerNorm)`.
    """

    def __call__(self, *args: Any, **named: Any) -> Any:
        if torch.is_grad_enabled() or self._forward_hooks or self._forward_pre_hooks:
            return super().__call__(*args, **named)
        return self.forward(*args, **named)


MAX_ROWS_PER_THREAD = 4
"""Up to this many rows per thread, (W · xᵀ)ᵀ is used."""
MIN_WEIGHT_SIZE = 2**18
"""Smaller W fit the caches and use F.linear."""


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x · Wᵀ + b: (…, I) → (…, O)."""
    is_small = weight_OI.numel() <= MIN_WEIGHT_SIZE
    if is_small or torch.is_grad_enabled() or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight_OI, bias_O)
    outputs, inputs = weight_OI.shape
    rows = x.numel() // inputs
    is_plain = (
        weight_OI.dtype == torch.float32 and weight_OI.device.type == "cpu" and weight_OI.is_contiguous()
    )
    if not 0 < rows <= MAX_ROWS_PER_THREAD * torch.get_num_threads() or not is_plain:
        return F.linear(x, weight_OI, bias_O)
    if rows == 1:
        y = _one_row(x, weight_OI)
    else:
        y = torch.mm(weight_OI, x.reshape(rows, inputs).t()).t().contiguous()
    y = y.view(*x.shape[:-1], outputs)
    return y if bias_O is None else y.add_(bias_O)


def _one_row(x: Tensor, weight_OI: Tensor) -> Tensor:
    outputs, inputs = weight_OI.shape
    half = (outputs + 1) // 2  # the halves overlap by one row if the number is odd
    halves_2HI = weight_OI.as_strided((2, half, inputs), ((outputs - half) * inputs, inputs, 1))
    # The strides of a transposed row; with those of a column torch picks a kernel that is seven times slower.
    x_2I1 = x.reshape(1, inputs).t().expand(2, inputs, 1)
    y_2H = torch.bmm(halves_2HI, x_2I1).view(2, half)
    return y_2H if outputs == 2 * half else torch.cat((y_2H[0], y_2H[1, 1:]))


class Linear(DirectCall, torch.nn.Linear):
    """torch's linear layer, with the product of `linear`."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        held = self._parameters  # faster than self.weight, which torch searches in several places
        return linear(x, held["weight"], held["bias"])  # type: ignore[arg-type]


class LowRankLinear(Linear):
    """LoRA: a frozen linear layer plus a learnt product of two low-rank matrices.

        y = W x + (α/r)·B A x,      A ∈ R^{r×I} random,  B ∈ R^{O×r} = 0 at first

    Hu et al. 2022, §4.1, eq. 3 (papers.bib: hu2022lora). It learns r·(I + O) numbers instead of I·O, and
    merges into one matrix, W' = W + (α/r)·B A, without cost at inference. W is the same parameter as in the
    replaced layer.
    Differs from the paper: W may stack several matrices ([W^Q; W^K; W^V]), which then share A.
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
        thin = F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)
        return linear(x, self.weight, self.bias) + self.scale * thin

    @torch.no_grad()
    def merged_weight(self) -> Tensor:
        """W' = W + (α/r)·B A, computed in float64 and rounded once."""
        product = self.lora_b.double() @ self.lora_a.double()
        return (self.weight.double() + self.scale * product).to(self.weight.dtype)

    @torch.no_grad()
    def merged(self) -> Linear:
        """The equivalent plain layer."""
        with torch.device("meta"):
            linear = Linear(self.in_features, self.out_features, self.bias is not None)
        linear.weight, linear.bias = nn.Parameter(self.merged_weight()), self.bias
        linear.weight.requires_grad_(True)
        if linear.bias is not None:
            linear.bias.requires_grad_(True)
        return linear.train(self.training)
