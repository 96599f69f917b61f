"""What is minimised: one small file for each objective."""

from unspool.objectives.cross_entropy import CrossEntropy

__all__ = ["OBJECTIVES", "CrossEntropy"]

OBJECTIVES: dict[str, type] = {"cross_entropy": CrossEntropy}
