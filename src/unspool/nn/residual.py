"""Where a residual branch is normalised.

    pre    x + f(LN(x))          Xiong et al. 2020, fig. 1b (papers.bib: xiong2020layer)
    post   LN(x + f(x))          Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention)
    both   x + LN′(f(LN(x)))     Ding et al. 2021, §3.2, "sandwich" (papers.bib: ding2021cogview)
    after  x + LN(f(x))          Walsh et al. 2025, eq. 1 (OLMo 2, papers.bib: walsh2025olmo)

A zero branch leaves x as it is under pre, both and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from unspool.nn.norms import NORMS

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
    """What all residual branches of a Transformer have alike."""

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
