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

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.direct_call import DirectCall

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
