"""LayerNorm and RMSNorm, and their placement on residual branches.

    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b   Ba et al. 2016, eq. 4
    RMSNorm     y = x / √(mean x² + ε) · g              Zhang & Sennrich 2019, eq. 4

papers.bib: ba2016layer, zhang2019root

Both use one position only, so the rest of the batch and padding do not affect them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from unspool.nn.linear import DirectCall


class LayerNorm(DirectCall, nn.LayerNorm):
    """Normalise to mean 0 and variance 1, then apply a learnt gain and shift."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        held = self._parameters
        return torch.layer_norm(x, self.normalized_shape, held["weight"], held["bias"], self.eps)


class RMSNorm(DirectCall, nn.RMSNorm):
    """Normalise to root mean square 1, then apply a learnt gain."""

    bias = None

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return torch.rms_norm(x, self.normalized_shape, self._parameters["weight"], self.eps)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}
NormPlace = Literal["after", "both", "post", "pre"]
Layer = Callable[[Tensor], Tensor]


def add_branch(place: str, x: Tensor, norm: Layer, branch: Layer, post_norm: Layer) -> Tensor:
    """x + the output of a residual branch f, with the norm LN at a `NormPlace`, and LN′ with "both".

        pre    x + f(LN(x))          Xiong et al. 2020, fig. 1b (papers.bib: xiong2020layer)
        post   LN(x + f(x))          Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention)
        both   x + LN′(f(LN(x)))     Ding et al. 2021, §3.2, "sandwich" (papers.bib: ding2021cogview)
        after  x + LN(f(x))          Walsh et al. 2025, eq. 1 (OLMo 2, papers.bib: walsh2025olmo)

    A zero branch leaves x unchanged with pre, both and after.
    """
    if place == "post":
        return norm(x + branch(x))
    if place == "after":
        return x + norm(branch(x))
    return x + (post_norm(branch(norm(x))) if place == "both" else branch(norm(x)))
