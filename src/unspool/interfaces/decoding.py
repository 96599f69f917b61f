"""Searches and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from random import Random

    from torch import Tensor

    from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
    from unspool.interfaces.model import Step, StepModel


class StopCondition(Protocol):
    """Looks at a path after each token and may end it: returns the path as it is, or with a finish."""

    def __call__(self, path: Hypothesis) -> Hypothesis: ...


class Transform(Protocol):
    """Reshapes what will be drawn from: normalised scores in, scores up to a constant out.

    Pure: the input is never written to, and at least one token of every row stays above −∞. `step.logp_NV` is
    the model's own; `step.log_norm_N` turns the scores that come with it into logits.
    """

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor: ...


@runtime_checkable
class Preparing(Protocol):
    """A transform that must look at the model and the job before it can act (words that need a tokenizer)."""

    def prepare(self, model: StepModel, job: Job) -> Transform: ...


@runtime_checkable
class Pick(Protocol):
    """Draws one token for every row; row i uses no random numbers but those of rngs[i]."""

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor: ...


@runtime_checkable
class Bindable(Protocol):
    """A pick that must look at the model, and at the transforms before it, before it can draw."""

    def bind(self, model: StepModel, transforms: Sequence[Transform]) -> Pick: ...


@runtime_checkable
class Counting(Protocol):
    """A pick that counts what it does: a finished path carries the counts of its own die in its notes."""

    def counted(self, die: Random) -> Mapping[str, Any]: ...


class Decoder(Protocol):
    """Walks a model from prompts to finished paths."""

    @property
    def streams(self) -> bool:
        """Whether a token, once on a frontier, stays: what a stream may show at once."""
        ...

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]: ...
