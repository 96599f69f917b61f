"""Output layers: hidden vectors to normalised log-probabilities, and their losses."""

from __future__ import annotations

from unspool.heads.softmax import SoftmaxHead

HeadConfig = SoftmaxHead
"""Any of the settings in HEADS."""

HEADS: dict[str, type[HeadConfig]] = {
    "softmax": SoftmaxHead,
}

__all__ = ["HEADS", "HeadConfig", "SoftmaxHead"]
