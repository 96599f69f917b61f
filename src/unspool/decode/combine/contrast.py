"""Contrastive decoding: prefer what a strong model finds probable and a weak one does not.

    score(i) = log p_strong(i) − λ log p_weak(i; τ)   if p_strong(i) ≥ α max_j p_strong(j), else −∞

Li et al. 2023, §3.2–3.4 (papers.bib: li2023contrastive). The constraint keeps a token that both models find
absurd from winning by the ratio of two tiny numbers. `Contrast.obrien_lewis` is the later form,

    score(i) = (1 + β) log p_strong(i) − β log p_weak(i)   on the same set,

O'Brien & Lewis 2023, §2 (papers.bib: obrien2023contrastive).

Symbols: expert = `strong`, amateur = `weak`, λ or β = `weight`, 1 or 1 + β = `strong_weight`,
τ = `temperature`. A search that draws uses softmax(score), `logp_NV`; one that ranks adds up the score
itself, `score_NV`, as the paper's beam search does.

Differs from the papers: log p_weak is not let below −10⁴, so that a token which the weak model rules out
has a finite score; O'Brien & Lewis write logits, which differ from log p by a constant of each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from unspool.decode.arguments import as_number, check_number
from unspool.decode.combine.lockstep import Lockstep
from unspool.interfaces import Step, StepModel

FLOOR = -1e4
"""The least log-probability that is subtracted."""


@dataclass(frozen=True)
class Contrast(Lockstep):
    """Contrast(strong, weak): a model whose every search maximises the difference of the two."""

    strong: StepModel
    weak: StepModel
    alpha: float = 0.1
    """How probable a token must be to the strong model, as a share of its most probable one."""
    weight: float = 1.0
    """How much the weak model counts."""
    temperature: float = 1.0
    """Of the weak model: below 1 it is surer of itself."""
    strong_weight: float = 1.0
    """How much the strong model counts."""

    def __post_init__(self) -> None:
        check_alpha(self)
        check_number(self, "weight", at_least=0, advice="0 leaves the weak model out.")
        check_number(self, "temperature", above=0, advice="1 leaves the weak model as it is.")
        check_number(self, "strong_weight", above=0, advice="The paper has 1.")
        super().__post_init__()

    @classmethod
    def obrien_lewis(cls, strong: StepModel, weak: StepModel, beta: float = 0.5, alpha: float = 0.1) -> Self:
        """(1 + β) log p_strong − β log p_weak."""
        beta = as_number("beta", beta, at_least=0, advice="0 is the strong model alone.")
        return cls(strong, weak, alpha, weight=beta, strong_weight=1 + beta)

    def parts(self) -> tuple[StepModel, ...]:
        """The strong model, then the weak one."""
        return self.strong, self.weak

    def join(self, steps: Sequence[Step]) -> Step:
        """The contrast; what lies behind the probabilities is the strong model's."""
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
    """True where p(i) ≥ α max_j p(j), so that at least one token of every row is; and where p(i) is NaN."""
    threshold = math.log(alpha) if alpha else -math.inf
    return ~(logp_NV < logp_NV.amax(dim=-1, keepdim=True) + threshold)


def check_alpha(contrast: StepModel) -> None:
    """Refuse an `alpha` that is no share of the largest probability."""
    advice = "0 keeps every token, 1 only the most probable one."
    check_number(contrast, "alpha", at_least=0, at_most=1, advice=advice)


@dataclass(frozen=True)
class DExperts(Lockstep):
    """DExperts(base, expert, anti_expert): a model steered by the difference of two others.

    DExperts: move a model as an expert differs from an anti-expert.

        p̃(i) ∝ p(i) · (p₊(i) / p₋(i))^α,     p₊ the expert's, p₋ the anti-expert's

    Liu et al. 2021, §2 (papers.bib: liu2021dexperts). `DExperts.proxy_tuning` is α = 1 with a small model
    before and after tuning as anti-expert and expert: what tuning did to it is done to a large one,
    Liu et al. 2024, §2 (papers.bib: liu2024tuning).

    α is `weight`; 0 is the base alone. A search ranks and draws by log p̃. Differs from the papers: they add
    logits, which differ from log p by a constant of each step. The log p₊ and log p₋ are not let below −10⁴,
    so that their difference is a number; what the base rules out stays ruled out. DExperts cuts the base's
    tail before it is moved: put a truncation into the search, which cuts after it.
    """

    base: StepModel
    expert: StepModel
    anti_expert: StepModel
    weight: float = 2.0
    """How far the base is moved; the paper has 2 against toxicity."""

    def __post_init__(self) -> None:
        check_number(self, "weight", at_least=0, advice="0 is the base alone, 1 proxy tuning.")
        super().__post_init__()

    @classmethod
    def proxy_tuning(cls, base: StepModel, tuned: StepModel, untuned: StepModel) -> Self:
        """The base as if it had been tuned as the small model was."""
        return cls(base, tuned, untuned, weight=1.0)

    def parts(self) -> tuple[StepModel, ...]:
        """The base, the expert, the anti-expert."""
        return self.base, self.expert, self.anti_expert

    def join(self, steps: Sequence[Step]) -> Step:
        """The base, moved; what lies behind the probabilities is the base's."""
        base, expert, anti = steps
        moved_NV = self.weight * (expert.logp_NV.clamp(min=FLOOR) - anti.logp_NV.clamp(min=FLOOR))
        sum_NV = (base.logp_NV + moved_NV).masked_fill(base.logp_NV == -math.inf, -math.inf)
        return Step(
            torch.log_softmax(sum_NV, dim=-1),
            base.hidden_ND,
            base.attention,
            log_norm_N=sum_NV.logsumexp(dim=-1),
        )
