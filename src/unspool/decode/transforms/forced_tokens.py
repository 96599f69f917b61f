"""Forced tokens: forced BOS and EOS, minimum length, and the thinking budget of reasoning models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor

from unspool.arguments import (
    Checked,
    ids,
    integer,
    known_ids,
    number,
    phrase,
    set_fields,
    token_ids,
    within,
)
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.transforms.penalties import encode_words
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.interfaces import Step, StepModel

Ids = tuple[int, ...]


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
        set_fields(bound, eos=self._known(tuple(job.eos) if self.eos is None else self.eos))
        return bound

    def end_tokens(self, scores_NV: Tensor) -> Ids:
        eos = self._known(self.eos)
        within(f"{type(self).__name__}.eos", eos, scores_NV.shape[1])
        return eos

    def _known(self, eos: Any) -> Ids:
        if not eos:
            raise ValueError(
                f"{type(self).__name__}.eos is unknown because the model does not name an end-of-text token: "
                "give its id"
            )
        known: Ids = eos
        return known


@dataclass(frozen=True)
class ForcedEOS(EndTokenTransform):
    """Forced EOS: a text ends with its length-th token at the latest, the end token included.

        p′(x) = [x ∈ EOS] / |EOS|   if length − 1 tokens were generated

    As `forced_eos_token_id` in Hugging Face's generate (Wolf et al. 2020). papers.bib: wolf2020transformers

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


@dataclass(frozen=True)
class ThinkingBudget(Checked):
    """Thinking budget: close the reasoning after n tokens, so that the answer begins.

        t = tokens since the opening mark;   c₁ … c_K = the closing mark, of which the text ends with c₁ … c_k
        score′(x) = score(x) + β [x = c_{k+1}]     if soft ≤ t < n
        p′(x) = [x = c_{k+1}]                      if t ≥ n, until the mark is complete

    Budget forcing of Muennighoff et al. 2025, §3.1, with the hard limit of llama.cpp (`--reasoning-budget`)
    and vLLM. papers.bib: muennighoff2025s1

    The prompt may open the reasoning, as many chat templates do. Text without an opening mark, or after the
    closing one, is unchanged. Put it after all truncations, and before Grammar. The reasoning has at most
    n tokens and the K of the mark. Differs from the paper: the end of the reasoning is never suppressed.
    """

    n: int = integer(at_least=0, advice="It is the number of tokens of reasoning; 0 closes it at once.")
    close: str | Iterable[int] = "</think>"
    """The closing mark, or a closing phrase that ends with it, as a string or as token ids."""
    open: str | Iterable[int] = "<think>"
    """The opening mark."""
    soft: int | None = integer(None, at_least=0, advice="None adds no bias before the limit.")
    """From this number of tokens on, the closing mark has a bias."""
    bias: float = number(5.0, at_least=0, at_most=1e9, advice="It is β, added to a log-probability.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("close", "open"):
            set_fields(self, **{name: phrase(f"ThinkingBudget.{name}", getattr(self, name))})

    def bind(self, model: StepModel, job: Job) -> ThinkingBudget:  # noqa: ARG002
        close, open_ = (encode_words(mark, model, "mark") for mark in (self.close, self.open))  # type: ignore[arg-type]
        return replace(self, close=close, open=open_)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        close, opening = known_ids("ThinkingBudget.close", (self.close, self.open))
        within("ThinkingBudget.close", close, scores_NV.shape[1])
        forced: dict[int, list[int]] = {}
        bias_NV = None
        for row, hypothesis in enumerate(history):
            thought = _thought(hypothesis, opening, close)
            if thought is None or (len(thought) < self.n and (self.soft is None or len(thought) < self.soft)):
                continue
            token = close[_overlap(thought, close)]
            if len(thought) >= self.n:
                forced.setdefault(token, []).append(row)
            else:
                bias_NV = torch.zeros_like(scores_NV) if bias_NV is None else bias_NV
                bias_NV[row, token] = self.bias
        out_NV = scores_NV if bias_NV is None else scores_NV + bias_NV
        for token, rows in forced.items():
            out_NV = force(out_NV, rows, (token,))
        return out_NV


def _thought(hypothesis: Hypothesis, opening: Ids, close: Ids) -> Ids | None:
    """The tokens since the last opening mark; None if there is none, or if it is closed."""
    begins = _last(hypothesis.tokens, opening)
    before: Ids | None = ()
    if begins is None:
        begins, before = 0, _open_in_prompt(hypothesis.prompt, opening, close)
    if before is None:
        return None
    thought = (*before, *hypothesis.tokens[begins:])
    return None if _last(thought, close) is not None else thought


@lru_cache(maxsize=256)
def _open_in_prompt(prompt: Ids, opening: Ids, close: Ids) -> Ids | None:
    """The tokens of the prompt since its last opening mark; None if it is closed."""
    begins = _last(prompt, opening)
    return None if begins is None or _last(prompt[begins:], close) is not None else prompt[begins:]


def _last(tokens: Ids, mark: Ids) -> int | None:
    """The index after the last occurrence of the mark."""
    if mark[-1] not in tokens:
        return None
    ends = range(len(tokens), len(mark) - 1, -1)
    return next((end for end in ends if tokens[end - len(mark) : end] == mark), None)


def _overlap(tokens: Ids, mark: Ids) -> int:
    """The length of the longest beginning of the mark, but not all of it, with which the tokens end."""
    lengths = range(min(len(mark) - 1, len(tokens)), 0, -1)
    return next((length for length in lengths if tokens[-length:] == mark[:length]), 0)
