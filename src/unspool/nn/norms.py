"""Normalisation of a vector by its own statistics.

    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b Ba et al. 2016, eq. 4 (papers.bib: ba2016layer)
    RMSNorm     y = x / √(mean x² + ε) · g            Zhang & Sennrich 2019, eq. 4 (papers.bib: zhang2019root)

Either sees one position only, so that batch-mates and padding never touch it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unspool.nn.linear import DirectCall


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


Branch = Callable[[Tensor], Tensor]


def pre(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """x + f(LN(x))."""
    return x + branch(norm(x))


def post(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """LN(x + f(x))."""
    return norm(x + branch(x))


def both(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:
    """x + LN′(f(LN(x)))."""
    return x + after(branch(norm(x)))


def after(x: Tensor, norm: Branch, branch: Branch, after: Branch) -> Tensor:  # noqa: ARG001
    """x + LN(f(x))."""
    return x + norm(branch(x))


PLACES: dict[str, Callable[[Tensor, Branch, Branch, Branch], Tensor]] = {
    "after": after,
    "pre": pre,
    "post": post,
    "both": both,
}


@dataclass(frozen=True)
class ResidualShape:
    """What all residual branches of a Transformer have alike.

    Where a residual branch is normalised.

        pre    x + f(LN(x))          Xiong et al. 2020, fig. 1b (papers.bib: xiong2020layer)
        post   LN(x + f(x))          Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention)
        both   x + LN′(f(LN(x)))     Ding et al. 2021, §3.2, "sandwich" (papers.bib: ding2021cogview)
        after  x + LN(f(x))          Walsh et al. 2025, eq. 1 (OLMo 2, papers.bib: walsh2025olmo)

    A zero branch leaves x as it is under pre, both and after.
    """

    width: int
    norm: str
    norm_eps: float
    norm_place: str
    dropout: float = 0.0

    def new_norm(self) -> nn.Module:
        """The norm of one branch."""
        return NORMS[self.norm](self.width, self.norm_eps)

    def new_post_norm(self) -> nn.Module:
        """The norm behind one branch, where there is one."""
        return self.new_norm() if self.norm_place == "both" else nn.Identity()
