"""Combinations of models: contrast, DExperts, ensemble, guidance and early exits. Each is a StepModel."""

from unspool.decode.combine.contrast import Contrast, DExperts
from unspool.decode.combine.early_exit import EarlyExit
from unspool.decode.combine.ensemble import Ensemble
from unspool.decode.combine.guidance import Guidance

__all__ = ["Contrast", "DExperts", "EarlyExit", "Ensemble", "Guidance"]
