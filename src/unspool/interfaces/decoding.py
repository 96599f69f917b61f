"""Interfaces of decoders, transforms, picks and stop conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from random import Random

    from torch import Tensor

    from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
    from unspool.interfaces.model import Step, StepModel


class StopCondition(Protocol):
    """Called with a hypothesis after each token; returns it as it is, or with a finish_reason."""

    def __call__(self, hypothesis: Hypothesis) -> Hypothesis: ...


class Transform(Protocol):
    """Reshapes the distribution: takes normalised scores, returns scores up to a constant.

    A pure function: it does not write to its input, and leaves at least one token of every row above −∞.
    `step.logp_NV` is the model's log p; scores + `step.log_norm_N` are logits.
    """

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor: ...


@runtime_checkable
class BindableTransform(Protocol):
    """A transform that needs the model or the job, such as words that need a tokenizer."""

    def bind(self, model: StepModel, job: Job) -> Transform: ...


@runtime_checkable
class Pick(Protocol):
    """Draws one token for every row; row i draws from rngs[i] only."""

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor: ...


@runtime_checkable
class BindablePick(Protocol):
    """A pick that needs the model and the transforms before it."""

    def bind(self, model: StepModel, transforms: Sequence[Transform]) -> Pick: ...


@runtime_checkable
class CountingPick(Protocol):
    """A pick that counts events; the counts of a finished hypothesis become its notes."""

    def pop_stats(self, rng: Random) -> Mapping[str, Any]: ...


class Decoder(Protocol):
    """Generates hypotheses: takes a model and a job, yields SearchSteps."""

    @property
    def streams(self) -> bool:
        """True if the tokens of a live hypothesis are final, so that they can be streamed."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]: ...
