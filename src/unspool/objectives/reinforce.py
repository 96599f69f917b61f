"""REINFORCE with a self-critical baseline: what is worth more than the greedy answer becomes more probable.

    L = −E_{ŷ∼p} [ r(ŷ) ],   ∇L ≈ −( r(ŷ) − r(y_greedy) ) ∇ log p(ŷ | x),   ŷ drawn from the model

Williams 1992, §4 (papers.bib: williams1992simple); for sequences, Ranzato et al. 2016, §3.2
(papers.bib: ranzato2016sequence); the greedy answer's reward as the baseline, Rennie et al. 2017, eq. 7–8
(papers.bib: rennie2017self). A baseline that does not depend on ŷ leaves the expected gradient as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.search import Greedy, Sample
from unspool.objectives.chosen_logp import target_logp
from unspool.objectives.rewarded_answers import Rewarded, worth
from unspool.objectives.rewards import reward_of
from unspool.objectives.rollouts import as_tensor, nothing_to_learn, questions, rows_of
from unspool.protocols import Clock, Loss, PreparedLoss, Trainable


@dataclass(frozen=True)
class Reinforce(Rewarded):
    """Raise the expected reward of what the model says: samples against its greedy answer."""

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
