"""DExperts: move a model as an expert differs from an anti-expert.

    p̃(i) ∝ p(i) · (p₊(i) / p₋(i))^α,     p₊ the expert's, p₋ the anti-expert's

Liu et al. 2021, §2 (papers.bib: liu2021dexperts). `DExperts.proxy_tuning` is α = 1 with a small model
before and after tuning as anti-expert and expert: what tuning did to it is done to a large one,
Liu et al. 2024, §2 (papers.bib: liu2024tuning).

α is `weight`; 0 is the base alone. A search ranks and draws by log p̃.
Differs from the papers: they add logits, which differ from log p by a constant of each step. The log p₊ and
log p₋ are not let below −10⁴, so that their difference is a number; what the base rules out stays ruled out.
DExperts cuts the base's tail before it is moved: put a truncation into the search, which cuts after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from unspool.decode.arguments import number
from unspool.decode.combine.contrast import FLOOR
from unspool.decode.combine.lockstep import Lockstep
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class DExperts(Lockstep):
    """DExperts(base, expert, anti_expert): a model steered by the difference of two others."""

    base: StepModel
    expert: StepModel
    anti_expert: StepModel
    weight: float = 2.0
    """How far the base is moved; the paper has 2 against toxicity."""

    def __post_init__(self) -> None:
        number(self, "weight", at_least=0, advice="0 is the base alone, 1 proxy tuning.")
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
