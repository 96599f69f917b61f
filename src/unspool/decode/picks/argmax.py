"""Take the most probable token.

    y = argmax_i s_i

Of equal scores the smallest token id wins, on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from torch import Tensor

from unspool.decode.shortlist.best_tokens import compiled_best
from unspool.protocols import Step

FEW = 8192
"""Scores up to which torch takes less time than to call anything else."""


@dataclass(frozen=True)
class ArgMax:
    """The mode of the distribution; draws nothing."""

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N)."""
        best = compiled_best(scores_NV, 1) if scores_NV.numel() > FEW else None
        return scores_NV.argmax(dim=-1) if best is None else best[1][:, 0]
