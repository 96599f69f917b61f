"""LayerNorm and RMSNorm, and their placement on residual branches.

    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b Ba et al. 2016, eq. 4 (papers.bib: ba2016layer)
    RMSNorm     y = x / √(mean x² + ε) · g            Zhang & Sennrich 2019, eq. 4 (papers.bib: zhang2019root)

Both use one position only, so the rest of the batch and padding do not affect them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.nn.linear import DirectCall


class LayerNorm(DirectCall, nn.LayerNorm):
    """Normalise to mean 0 and variance 1, then apply a learnt gain and shift."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        held = self._parameters
        return torch.layer_norm(x, self.normalized_shape, held["weight"], held["bias"], self.eps)


class RMSNorm(DirectCall, nn.RMSNorm):
    """Normalise to root mean square 1, then apply a learnt gain."""

    bias = None

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return torch.rms_norm(x, self.normalized_shape, self._parameters["weight"], self.eps)


NORMS: dict[str, type[LayerNorm] | type[RMSNorm]] = {"layer": LayerNorm, "rms": RMSNorm}


Branch = Callable[[Tensor], Tensor]


def pre_norm(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """x + f(LN(x))."""
    return x + branch(norm(x))


def post_norm(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """LN(x + f(x))."""
    return norm(x + branch(x))


def sandwich_norm(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:
    """x + LN′(f(LN(x)))."""
    return x + after(branch(norm(x)))


def branch_norm(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """x + LN(f(x))."""
    return x + norm(branch(x))


RESIDUALS: dict[str, Callable[[Tensor, Branch, Branch, Branch], Tensor]] = {
    "after": branch_norm,
    "pre": pre_norm,
    "post": post_norm,
    "both": sandwich_norm,
}


@dataclass(frozen=True)
class ResidualConfig:
    """Settings of the residual branches of a Transformer: width, norm and its place, dropout.

        pre    x + f(LN(x))          Xiong et al. 2020, fig. 1b (papers.bib: xiong2020layer)
        post   LN(x + f(x))          Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention)
        both   x + LN′(f(LN(x)))     Ding et al. 2021, §3.2, "sandwich" (papers.bib: ding2021cogview)
        after  x + LN(f(x))          Walsh et al. 2025, eq. 1 (OLMo 2, papers.bib: walsh2025olmo)

    A zero branch leaves x unchanged with pre, both and after.
    """

    width: int
    norm: str
    norm_eps: float
    norm_place: str
    dropout: float = 0.0

    def new_norm(self) -> nn.Module:
        """A norm for one branch."""
        return NORMS[self.norm](self.width, self.norm_eps)

    def new_post_norm(self) -> nn.Module:
        """A norm after one branch, or the identity."""
        return self.new_norm() if self.norm_place == "both" else nn.Identity()
