"""Combinations of models: contrast, DExperts, ensemble, guidance and early exits. Each is a StepModel."""

from unspool.decode.combine.contrast import Contrast, DExperts, EarlyExit, Guidance
from unspool.decode.combine.ensemble import Ensemble

__all__ = ["Contrast", "DExperts", "EarlyExit", "Ensemble", "Guidance"]
