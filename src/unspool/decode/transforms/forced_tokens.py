"""Forced tokens: forced BOS, forced EOS and minimum length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from unspool.decode.arguments import Checked, ends, ids, integer, set_fields, token_ids, within
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step, StepModel


def force(scores_NV: Tensor, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """Leave only `tokens` in `rows`, equally probable, even if an earlier transform has cut them."""
    if not rows:
        return scores_NV
    only_V = torch.full_like(scores_NV[0], -math.inf)
    only_V[list(tokens)] = 0
    out_NV = scores_NV.clone()
    out_NV[list(rows)] = only_V
    return out_NV


@dataclass(frozen=True)
class ForcedBOS:
    """Forced BOS: the first generated token is a given one.

        p′(x) = [x = b]   for the first generated token

    Liu et al. 2020 (mBART: the first token names the target language); `forced_bos_token_id` in Hugging Face.
    papers.bib: liu2020mbart

    Differs from Hugging Face, which forces the second token of the decoder, after the start token; here it is
    the first generated token after any prompt.
    """

    token: int

    def __post_init__(self) -> None:
        set_fields(self, token=ids("ForcedBOS.token", [self.token])[0])

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        within("ForcedBOS.token", [self.token], scores_NV.shape[1])
        return force(
            scores_NV, [row for row, hypothesis in enumerate(history) if not hypothesis.tokens], (self.token,)
        )


class EndTokenTransform(Checked):
    """A transform of end-of-text tokens: those given as `eos`, or those of the job."""

    eos: Any

    def bind(self, model: StepModel, job: Job) -> Self:  # noqa: ARG002
        bound = copy(self)
        if self.eos is None:
            set_fields(bound, eos=ends(f"{type(self).__name__}.eos", job.eos))
        return bound

    def end_tokens(self, scores_NV: Tensor) -> tuple[int, ...]:
        name = f"{type(self).__name__}.eos"
        eos = ends(name, self.eos)
        within(name, eos, scores_NV.shape[1])
        return eos


@dataclass(frozen=True)
class ForcedEOS(EndTokenTransform):
    """Forced EOS: a text ends with its length-th token at the latest, the end token included.

        p′(x) = [x ∈ EOS] / |EOS|   if length − 1 tokens were generated

    As `forced_eos_token_id` in Hugging Face's generate (Wolf et al. 2020).
    papers.bib: wolf2020transformers

    Differs from Hugging Face: `length` counts generated tokens, without the prompt.
    """

    length: int = integer(at_least=1, advice="It includes the end token.")
    eos: int | Iterable[int] | None = token_ids(None)
    """One or more end-of-text tokens, equally probable; None for those of the model."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        last = [row for row, hypothesis in enumerate(history) if len(hypothesis.tokens) == self.length - 1]
        return force(scores_NV, last, self.end_tokens(scores_NV))


@dataclass(frozen=True)
class MinLength(EndTokenTransform):
    """Minimum length: ban the end of the text before n tokens.

        ban EOS  ⇔  fewer than n tokens were generated

    As `min_new_tokens` in Hugging Face's generate (Wolf et al. 2020); its `min_length` counts the prompt,
    too. papers.bib: wolf2020transformers

    A text with finish_reason "eos" has at least n tokens before its end. If only end tokens are left in a
    row, see `scores.ban`.
    """

    n: int = integer(at_least=0, advice="0 is off.")
    eos: int | Iterable[int] | None = token_ids(None)
    """One or more end-of-text tokens; None for those of the model."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
        peaks(scores_NV, history)
        eos = self.end_tokens(scores_NV)
        short = [row for row, hypothesis in enumerate(history) if len(hypothesis.tokens) < self.n]
        return ban_each(scores_NV, step, [(row, token) for row in short for token in eos])
