"""The shape of a truncation: a rule that keeps some tokens of each row and cuts the others.

    score′(x) = score(x) if x ∈ keeps(p) else −∞

A truncation looks at one row's probabilities and at nothing else, so a sampler that only needs to know
whether a drawn token survives may ask `keeps` and leave the scores alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from unspool.decode.path import Path
from unspool.decode.transforms.scores import cut, peaks
from unspool.protocols import Step


class Truncation(ABC):
    """A transform that is known by the set of tokens it keeps."""

    @abstractmethod
    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where a token survives; at least one of every row does, and none that was cut before."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """The scores with every token that the rule does not keep at −∞."""
        peaks(scores_NV)
        return cut(scores_NV, self.keeps(scores_NV))
