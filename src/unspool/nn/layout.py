"""A matrix product whose weights lie in memory as the number of rows wants them.

    y_NO = x_NI · W_OIᵀ + b_O

The same product is bound by memory when one row is decoded and by arithmetic when many are, and no
single layout serves both (side by side in `benchmarks/layout.py`):

    one row, one thread    Wᵀ contiguous: every weight is read once, in order
    otherwise              W prepacked into oneDNN's blocks

Both are copies made at the first product that wants them, and made again when W has changed. With
gradients, on a GPU or in another precision the product is torch's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Blocks laid out for this many rows are, unlike those for one row, fast for every number of rows.
PACK_ROWS = 32


def _can_lay_out(weight: Tensor) -> bool:
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and not weight.is_inference()
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class Layout:
    """The layouts of one weight matrix, made when first wanted. Never saved, never copied."""

    def __init__(self) -> None:
        self._of: tuple[int, int] | None = None
        self._usable = False
        self._transposed: Tensor | None = None
        self._packed: Tensor | None = None

    def linear(self, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
        """x · Wᵀ + b."""
        if torch.is_grad_enabled():
            return F.linear(x, weight_OI, bias_O)
        of = (weight_OI.data_ptr(), 0 if weight_OI.is_inference() else weight_OI._version)
        if of != self._of:
            self._of, self._transposed, self._packed = of, None, None
            self._usable = _can_lay_out(weight_OI)
        if not self._usable:
            return F.linear(x, weight_OI, bias_O)
        if x.numel() == weight_OI.shape[1] and torch.get_num_threads() == 1:
            if self._transposed is None:
                self._transposed = weight_OI.detach().t().contiguous()
            y = torch.matmul(x, self._transposed)
            return y if bias_O is None else y.add_(bias_O)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach(), PACK_ROWS)
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias_O, "none", [], "")
        return packed

    def __deepcopy__(self, memo: object) -> Layout:
        return Layout()

    def __reduce__(self) -> tuple[type[Layout], tuple[()]]:
        return Layout, ()


class Linear(torch.nn.Linear):
    """torch's linear layer with the layout of its weights chosen by the number of rows."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.layout = Layout()

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        held = self._parameters  # many times as fast as asking for self.weight, which decoding would notice
        return self.layout.linear(x, held["weight"], held["bias"])  # type: ignore[arg-type]
