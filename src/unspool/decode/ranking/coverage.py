"""Coverage penalty: a hypothesis pays for every source token that it has not looked at.

    s(y, x) = log p(y | x) / lp(y) + cp(x, y),    cp(x, y) = β Σ_i log min(Σ_t a_ti, 1)

a_ti is the attention on source token i while target token t was predicted. The penalty is at most 0, and
0 where every source token has received a whole unit of attention. It is added to whatever length penalty
ranks the hypothesis, when the hypothesis ends; while they grow, hypotheses are compared by their sums.
Wu et al. 2016, §7, equation 14 (p_ij there).
papers.bib: wu2016google

Needs a model whose Step.attention is (N, S), the attention of every row over one source of S tokens.
Columns that hold exactly 0 at the first step are the padding of a shorter source and are not counted.
Differs from the paper: a source token whose attention stays exactly 0 costs β·log(smallest normal number)
instead of −∞, so that hypotheses which all miss one word can still be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.protocols import Step


@dataclass(frozen=True)
class Coverage:
    """Add β Σ_i log min(Σ_t a_ti, 1) to the score of an ended hypothesis."""

    beta: float = 0.2

    def __post_init__(self) -> None:
        number(
            self,
            "beta",
            at_least=0,
            advice="The paper uses 0.2; to ignore coverage, leave it out.",
        )

    def __call__(self, attended: Attended) -> Tensor:
        """(N): the penalty of every row, were it to end with its next token."""
        share_NS = attended.sum_NS.clamp(min=torch.finfo(attended.sum_NS.dtype).tiny, max=1.0)
        return self.beta * (share_NS.log() * attended.real_NS).sum(dim=-1)


@dataclass(frozen=True)
class Attended:
    """How much attention every row has spent on every source token so far."""

    sum_NS: Tensor
    real_NS: Tensor
    """False in the columns that pad a shorter source."""

    @classmethod
    def begin(cls, step: Step) -> Attended:
        """What the first step looked at."""
        first_NS = _attention(step).double()
        return cls(first_NS, first_NS != 0)

    def select(self, rows_M: Tensor) -> Attended:
        """Rows reordered, repeated or dropped."""
        return Attended(self.sum_NS.index_select(0, rows_M), self.real_NS.index_select(0, rows_M))

    def plus(self, step: Step) -> Attended:
        """With what one more step looked at."""
        new_NS = _attention(step)
        if new_NS.shape != self.sum_NS.shape:
            raise ValueError(
                f"Coverage: the model's attention changed its shape from {tuple(self.sum_NS.shape)} to "
                f"{tuple(new_NS.shape)}, but must be (rows, source tokens) over one fixed source. "
                "Leave coverage out for a model that attends to what it has generated."
            )
        return Attended(self.sum_NS + new_NS, self.real_NS)


def _attention(step: Step) -> Tensor:
    if step.attention is None or step.attention.dim() != 2:
        found = "none" if step.attention is None else f"one of shape {tuple(step.attention.shape)}"
        raise ValueError(
            "Coverage needs a model that reports its attention over the source as (rows, source tokens), and "
            f"the Step.attention of this one is {found}. Use an encoder–decoder that reports it, or leave "
            "coverage out."
        )
    return step.attention
