"""Take the most probable token.

    y = argmax_i s_i

Of equal scores the smallest token id wins, on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from torch import Tensor

from unspool.protocols import Step


@dataclass(frozen=True)
class ArgMax:
    """The mode of the distribution; rolls no dice."""

    def draw(self, scores_NV: Tensor, step: Step, dice: Sequence[Random]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N)."""
        return scores_NV.argmax(dim=-1)
