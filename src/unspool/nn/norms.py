"""Normalisation of a vector by its own statistics.

    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b Ba et al. 2016, eq. 4 (papers.bib: ba2016layer)
    RMSNorm     y = x / √(mean x² + ε) · g            Zhang & Sennrich 2019, eq. 4 (papers.bib: zhang2019root)

Either sees one position only, so that batch-mates and padding never touch it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unspool.nn.direct_call import DirectCall


class LayerNorm(DirectCall, nn.LayerNorm):
    """Mean 0, variance 1, then a learnt gain and shift."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        held = self._parameters
        return torch.layer_norm(x, self.normalized_shape, held["weight"], held["bias"], self.eps)


class RMSNorm(DirectCall, nn.RMSNorm):
    """Root mean square 1, then a learnt gain."""

    bias = None
    """It has no shift."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return torch.rms_norm(x, self.normalized_shape, self._parameters["weight"], self.eps)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
