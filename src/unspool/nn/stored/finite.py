"""Whether all numbers of a tensor are finite, by one pass that needs no memory of its own."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(numbers: Tensor) -> bool:
    """Neither NaN nor infinity is among them. There must be one number at least."""
    low, high = torch.aminmax(numbers)  # either is NaN if any number is
    return bool(low.isfinite() and high.isfinite())
