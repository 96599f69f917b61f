"""Objectives that draw answers and ask how much these are worth: what they have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.search import Greedy, Sample
from unspool.interfaces import Clock, Loss, PreparedLoss, Trainable
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.rewards import check_name, reward_of
from unspool.objectives.rollouts import Generating, as_tensor, nothing_to_learn, questions, rows_of


@dataclass(frozen=True)
class Rewarded(Generating):
    """An objective that asks what the model's own answers are worth."""

    reward: str = "chrf"
    """bleu, chrf, exact_match, or a Python function (said, wanted) → number, as module:function; this needs
    --trust-code."""
    samples: int = 1
    """Answers that are drawn for each question."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.reward)

    @property
    def rewarded(self) -> bool:
        """It does."""
        return True

    @property
    def draws(self) -> bool:
        """Answers."""
        return True

    def check(self, model: Trainable) -> None:
        """Refuse a model that says no texts, and a reward that is not there."""
        super().check(model)
        _needs_text(model)
        reward_of(self.reward)


def worth(model: Any, reward: Any, said: Sequence[int], wanted: Sequence[int]) -> float:
    """The reward of an answer."""
    value: float = reward(model.tokenizer.decode(said), model.tokenizer.decode(wanted))
    return value


def _needs_text(model: Any) -> None:
    if model.tokenizer is None:
        raise ValueError("a reward compares texts, and this model has no tokenizer: build it with a text")


@dataclass(frozen=True)
class Reinforce(Rewarded):
    """Raise the expected reward of what the model says: samples against its greedy answer.

    REINFORCE with a self-critical baseline: what is worth more than the greedy answer becomes more probable.

        L = −E_{ŷ∼p} [ r(ŷ) ],   ∇L ≈ −( r(ŷ) − r(y_greedy) ) ∇ log p(ŷ | x),   ŷ drawn from the model

    Williams 1992, §4 (papers.bib: williams1992simple); for sequences, Ranzato et al. 2016, §3.2
    (papers.bib: ranzato2016sequence); the greedy answer's reward as the baseline, Rennie et al. 2017, eq. 7–8
    (papers.bib: rennie2017self). A baseline that does not depend on ŷ leaves the expected gradient as it is.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise ValueError(f"samples={self.samples} must be at least 1")

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The sum over the answers; stats has the samples' rewards ("reward") and the greedy ones."""
        asked, reward = questions(model, batch, self.prompt), reward_of(self.reward)
        if not asked:
            return nothing_to_learn("reward", "greedy_reward")
        drawn = self.answers(model, asked, Sample(), self.samples)
        greedy = self.answers(model, asked, Greedy())
        pairs = [(it, out.tokens) for it, group in zip(asked, drawn, strict=True) for out in group]
        base = {
            it.row: worth(model, reward, out[0].tokens, it.wanted)
            for it, out in zip(asked, greedy, strict=True)
        }
        found = [worth(model, reward, tokens, it.wanted) for it, tokens in pairs]
        made = rows_of(model, batch, *zip(*pairs, strict=True))
        stats = {"reward": sum(found), "greedy_reward": sum(base.values()) * self.samples}

        def compute(reader: Any) -> Loss:
            logp_NU = target_logp(reader, made)
            better_N = as_tensor(found, logp_NU) - as_tensor([base[it.row] for it, _ in pairs], logp_NU)
            return Loss(surrogate(logp_NU.sum(dim=1), better_N), float(len(pairs)), stats)

        return PreparedLoss(float(len(pairs)), compute)


def surrogate(logp_N: Tensor, advantage_N: Tensor) -> Tensor:
    """−Σ (r − b) log p: its gradient is the estimate, its value means nothing."""
    return -(advantage_N.detach() * logp_N).sum()


@dataclass(frozen=True)
class MinimumRisk(Rewarded):
    """Lower the expected cost over the right answer and some that are drawn.

    Minimum risk training: the expected cost of answers, over some of them that the model finds probable.

        L = Σ_{y ∈ S(x)} Q(y) Δ(y),   Q(y) = p(y | x)^α / Σ_{y′ ∈ S(x)} p(y′ | x)^α,   Δ = 1 − reward

    Shen et al. 2016, eq. 11–13 and algorithm 1 (papers.bib: shen2016minimum): S(x) is the right answer and
    the different ones among some that are drawn; α = 5·10⁻³ keeps Q from being all on one of them.
    """

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
