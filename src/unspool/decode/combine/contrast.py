"""Contrastive decoding: prefer tokens that are probable for a strong model and not for a weak one.

    score(i) = log p_strong(i) − λ log p_weak(i; τ)   if p_strong(i) ≥ α max_j p_strong(j), else −∞

Li et al. 2023, §3.2–3.4 (papers.bib: li2023contrastive). The constraint excludes tokens that are improbable
for both models. `Contrast.obrien_lewis` is the later form,

    score(i) = (1 + β) log p_strong(i) − β log p_weak(i)   on the same set,

O'Brien & Lewis 2023, §2 (papers.bib: obrien2023contrastive).

Symbols: expert = `strong`, amateur = `weak`, λ or β = `weight`, 1 or 1 + β = `strong_weight`,
τ = `temperature`. Sampling uses softmax(score), `logp_NV`; beam search sums the score, `score_NV`, as in the
paper.

Differs from the papers: log p_weak is at least −10⁴, so that a token of zero probability for the weak model
has a finite score; O'Brien & Lewis write logits, which differ from log p by a constant of each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from unspool.decode.arguments import as_number, number
from unspool.decode.combine.lockstep import Lockstep
from unspool.interfaces import Step, StepModel

FLOOR = -1e4
"""Lower bound of log-probabilities that are subtracted."""
ALPHA: dict[str, Any] = {
    "at_least": 0,
    "at_most": 1,
    "advice": "0 keeps every token, 1 only the most probable one.",
}
"""The limits of α."""


@dataclass(frozen=True)
class Contrast(Lockstep):
    """Contrast(strong, weak): a model whose scores are the difference of two models."""

    strong: StepModel
    weak: StepModel
    alpha: float = number(0.1, **ALPHA)
    """How probable a token must be to the strong model, as a share of its most probable one."""
    weight: float = number(1.0, at_least=0, advice="0 leaves the weak model out.")
    """How much the weak model counts."""
    temperature: float = number(1.0, above=0, advice="1 leaves the weak model as it is.")
    """Of the weak model: below 1 it is surer of itself."""
    strong_weight: float = number(1.0, above=0, advice="The paper has 1.")
    """How much the strong model counts."""

    @classmethod
    def obrien_lewis(cls, strong: StepModel, weak: StepModel, beta: float = 0.5, alpha: float = 0.1) -> Self:
        """(1 + β) log p_strong − β log p_weak."""
        beta = as_number("beta", beta, at_least=0, advice="0 is the strong model alone.")
        return cls(strong, weak, alpha, weight=beta, strong_weight=1 + beta)

    def parts(self) -> tuple[StepModel, ...]:
        return self.strong, self.weak

    def join(self, steps: Sequence[Step]) -> Step:
        """The contrast; hidden states and attention are the strong model's."""
        strong, weak = steps
        weak_NV = weak.logp_NV
        if self.temperature != 1:
            weak_NV = torch.log_softmax(weak_NV / self.temperature, dim=-1)
        difference_NV = self.strong_weight * strong.logp_NV - self.weight * weak_NV.clamp(min=FLOOR)
        score_NV = difference_NV.masked_fill(~plausible(strong.logp_NV, self.alpha), -math.inf)
        log_norm_N = score_NV.logsumexp(dim=-1)
        logp_NV = torch.log_softmax(score_NV, dim=-1)
        return Step(logp_NV, strong.hidden_ND, strong.attention, score_NV, log_norm_N=log_norm_N)


def plausible(logp_NV: Tensor, alpha: float) -> Tensor:
    """True if p(i) ≥ α max_j p(j) (at least one token of every row), or if p(i) is NaN."""
    threshold = math.log(alpha) if alpha else -math.inf
    return ~(logp_NV < logp_NV.amax(dim=-1, keepdim=True) + threshold)


@dataclass(frozen=True)
class DExperts(Lockstep):
    """DExperts(base, expert, anti_expert): steer a model by the difference of an expert and an anti-expert.

        p̃(i) ∝ p(i) · (p₊(i) / p₋(i))^α,     p₊ the expert's, p₋ the anti-expert's

    Liu et al. 2021, §2 (papers.bib: liu2021dexperts). `DExperts.proxy_tuning` has α = 1, a tuned small
    model as expert and the untuned one as anti-expert: a large model is steered as if it were tuned,
    Liu et al. 2024, §2 (papers.bib: liu2024tuning).

    α is `weight`; 0 is the base alone. Differs from the papers: they add logits, which differ from log p by a
    constant of each step. log p₊ and log p₋ are at least −10⁴, so that their difference is finite; tokens of
    zero probability for the base stay excluded. The paper truncates the base before steering; here a
    truncation in the decoder cuts afterwards.
    """

    base: StepModel
    expert: StepModel
    anti_expert: StepModel
    weight: float = number(2.0, at_least=0, advice="0 is the base alone, 1 proxy tuning.")
    """α; the paper uses 2 against toxicity."""

    @classmethod
    def proxy_tuning(cls, base: StepModel, tuned: StepModel, untuned: StepModel) -> Self:
        """Steer the base as if it were tuned like the small model."""
        return cls(base, tuned, untuned, weight=1.0)

    def parts(self) -> tuple[StepModel, ...]:
        return self.base, self.expert, self.anti_expert

    def join(self, steps: Sequence[Step]) -> Step:
        """The steered base; hidden states and attention are the base's."""
        base, expert, anti = steps
        moved_NV = self.weight * (expert.logp_NV.clamp(min=FLOOR) - anti.logp_NV.clamp(min=FLOOR))
        sum_NV = (base.logp_NV + moved_NV).masked_fill(base.logp_NV == -math.inf, -math.inf)
        return Step(
            torch.log_softmax(sum_NV, dim=-1),
            base.hidden_ND,
            base.attention,
            log_norm_N=sum_NV.logsumexp(dim=-1),
        )
