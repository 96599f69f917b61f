"""A matrix product whose weights lie in memory as the number of rows wants them.

    y_NO = x_NI · W_OIᵀ + b_O

The same product is bound by memory when one row is decoded and by arithmetic when many are, and no
single layout serves both (side by side in `benchmarks/layout.py`):

    one row, one thread    Wᵀ contiguous: every weight is read once, in order
    otherwise              W prepacked into oneDNN's blocks

Both are copies made at the first product that wants them, and made again when W has changed. With
gradients, on a GPU, in another precision (x's or W's) or under autocast the product is torch's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.nn.direct_call import DirectCall

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


class WeightLayout:
    """The layouts of one weight matrix, made when first wanted. Never saved, never copied."""

    def __init__(self) -> None:
        self._of: tuple[int, int] | None = None
        self._usable, self._inputs = False, 0
        self._transposed: Tensor | None = None
        self._packed: Tensor | None = None

    def linear(self, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
        """x · Wᵀ + b."""
        if torch.is_grad_enabled():
            self.forget()
            return F.linear(x, weight_OI, bias_O)
        # The blocks are float32 and know nothing of autocast, which may also have made x what it is.
        if x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return F.linear(x, weight_OI, bias_O)
        try:
            of = weight_OI.data_ptr(), weight_OI._version
        except RuntimeError:  # made in inference mode, where nobody counts versions
            of = weight_OI.data_ptr(), 0
        if of != self._of:
            self._of, self._transposed, self._packed = of, None, None
            self._usable, self._inputs = _can_lay_out(weight_OI), weight_OI.shape[1]
        if not self._usable:
            return F.linear(x, weight_OI, bias_O)
        if x.numel() == self._inputs and torch.get_num_threads() == 1:
            if self._transposed is None:
                self._transposed = weight_OI.detach().t().contiguous()
            if bias_O is not None and x.dim() == 2:
                return torch.addmm(bias_O, x, self._transposed)
            y = torch.matmul(x, self._transposed)
            return y if bias_O is None else y.add_(bias_O)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI.detach(), PACK_ROWS)
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, bias_O, "none", [], "")
        return packed

    def forget(self) -> None:
        """An update may follow: fused optimizers change weights without telling torch's count of versions."""
        self._of = None

    def __deepcopy__(self, memo: object) -> WeightLayout:
        return WeightLayout()

    def __reduce__(self) -> tuple[type[WeightLayout], tuple[()]]:
        return WeightLayout, ()


class Linear(DirectCall, torch.nn.Linear):
    """torch's linear layer with the layout of its weights chosen by the number of rows."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.layout = WeightLayout()

    def __call__(self, x: Tensor) -> Tensor:
        """`forward`, and whatever hooks there are."""
        if torch.is_grad_enabled() or self._forward_hooks or self._forward_pre_hooks:
            out: Tensor = super().__call__(x)
            return out
        held = self._parameters
        return self.layout.linear(x, held["weight"], held["bias"])  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        held = self._parameters  # much quicker than self.weight, which torch looks for in several places
        return self.layout.linear(x, held["weight"], held["bias"])  # type: ignore[arg-type]
