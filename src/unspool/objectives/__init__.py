"""What is minimised: one small file for each objective.

A recipe has one of them in [objective], and any number beside it in [[auxiliary]] (`weighted_sum`).
"""

from typing import Any

from unspool.objectives.attention_focus import AttentionFocus
from unspool.objectives.attention_near import AttentionNear
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.weighted_sum import Share, WeightedSum

__all__ = ["OBJECTIVES", "AttentionFocus", "AttentionNear", "CrossEntropy", "Share", "WeightedSum"]

# To add a kind: write its dataclass in a file of its own, and its line here.
OBJECTIVES: dict[str, type[Any]] = {
    "attention_focus": AttentionFocus,
    "attention_near": AttentionNear,
    "cross_entropy": CrossEntropy,
}
