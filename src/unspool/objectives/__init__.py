"""Training objectives (losses).

A recipe has one in [objective] and any number of auxiliary ones in [[auxiliary]] (`weighted_sum`).
"""

from typing import Any

from unspool.objectives.attention_losses import AttentionFocus, AttentionNear, DependencyHeads
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.distillation import Distillation
from unspool.objectives.expected_reward import MinimumRisk, Reinforce
from unspool.objectives.masked import Masked, MaskedDiffusionLoss
from unspool.objectives.scheduled_sampling import ScheduledSampling
from unspool.objectives.unlikelihood import SequenceUnlikelihood, Unlikelihood
from unspool.objectives.weighted_sum import AuxiliarySettings, WeightedSum

__all__ = [
    "OBJECTIVES",
    "AttentionFocus",
    "AttentionNear",
    "AuxiliarySettings",
    "CrossEntropy",
    "DependencyHeads",
    "Distillation",
    "Masked",
    "MaskedDiffusionLoss",
    "MinimumRisk",
    "Reinforce",
    "ScheduledSampling",
    "SequenceUnlikelihood",
    "Unlikelihood",
    "WeightedSum",
]

# To add an objective, write its dataclass and add a line here.
OBJECTIVES: dict[str, type[Any]] = {
    "attention_focus": AttentionFocus,
    "attention_near": AttentionNear,
    "cross_entropy": CrossEntropy,
    "dependency_heads": DependencyHeads,
    "distillation": Distillation,
    "masked": Masked,
    "masked_diffusion": MaskedDiffusionLoss,
    "minimum_risk": MinimumRisk,
    "reinforce": Reinforce,
    "scheduled_sampling": ScheduledSampling,
    "sequence_unlikelihood": SequenceUnlikelihood,
    "unlikelihood": Unlikelihood,
}
