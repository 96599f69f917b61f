"""Minimum risk training: the expected cost of answers, over some of them that the model finds probable.

    L = Σ_{y ∈ S(x)} Q(y) Δ(y),   Q(y) = p(y | x)^α / Σ_{y′ ∈ S(x)} p(y′ | x)^α,   Δ = 1 − reward

Shen et al. 2016, eq. 11–13 and algorithm 1 (papers.bib: shen2016minimum): S(x) is the right answer and the
different ones among some that are drawn; α = 5·10⁻³ keeps Q from being all on one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.search import Sample
from unspool.objectives.chosen_logp import target_logp
from unspool.objectives.rewarded_answers import Rewarded, worth
from unspool.objectives.rewards import reward_of
from unspool.objectives.rollouts import as_tensor, nothing_to_learn, questions, rows_of
from unspool.protocols import Clock, Loss, PreparedLoss, Trainable


@dataclass(frozen=True)
class MinimumRisk(Rewarded):
    """Lower the expected cost over the right answer and some that are drawn."""

    samples: int = 8
    """Answers that are drawn for each question."""
    alpha: float = 5e-3
    """How sharp Q is: 1 is the model's own probability, renormalised."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 2:
            raise ValueError(
                f"samples={self.samples} must be at least 2: one answer is nothing to choose from"
            )
        if not 0.0 < self.alpha < math.inf:
            raise ValueError(f"alpha={self.alpha} must be above 0, and finite")

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The sum over the questions of the batch."""
        asked, reward = questions(model, batch, self.prompt), reward_of(self.reward)
        if not asked:
            return nothing_to_learn("risk")
        drawn = self.answers(model, asked, Sample(), self.samples)
        sets = [
            list(dict.fromkeys((it.wanted, *(out.tokens for out in group))))
            for it, group in zip(asked, drawn, strict=True)
        ]
        pairs = [(it, tokens) for it, group in zip(asked, sets, strict=True) for tokens in group]
        made = rows_of(model, batch, *zip(*pairs, strict=True))
        costs = [1 - worth(model, reward, tokens, it.wanted) for it, tokens in pairs]
        sizes = [len(group) for group in sets]

        def compute(reader: Any) -> Loss:
            logp_N = target_logp(reader, made).sum(dim=1)
            cost_N = as_tensor(costs, logp_N)
            both = zip(logp_N.split_with_sizes(sizes), cost_N.split_with_sizes(sizes), strict=True)
            risks = [risk(logp_S, cost_S, self.alpha) for logp_S, cost_S in both]
            total = sum(risks, start=logp_N.new_zeros(()))
            return Loss(total, float(len(asked)), {"risk": float(total.detach())})

        return PreparedLoss(float(len(asked)), compute)


def risk(logp_S: Tensor, cost_S: Tensor, alpha: float) -> Tensor:
    """Σ Q Δ over the answers to one question."""
    return (alpha * logp_S).softmax(dim=0) @ cost_S
