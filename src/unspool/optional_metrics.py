"""Load sacrebleu, which rewards, validation and evaluation share; it is an optional dependency."""

from __future__ import annotations

from typing import Any


def sacrebleu_metrics() -> Any:
    """Return the module sacrebleu.metrics (BLEU, CHRF, TER), or say how to install it."""
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise ModuleNotFoundError(
            "BLEU, chrF and TER need sacrebleu: pip install unspool[evaluate]"
        ) from error
    return metrics
