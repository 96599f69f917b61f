"""A search's transforms: checked when the search is made, told of the model and the job when it begins, and
applied one after the other at every step.

    s_0 = log p,   s_i = log_softmax(f_i(s_{i−1}))

Scores are normalised between two transforms, so that each is given a distribution. A rule that is published
on logits (`on_logits`, the repetition penalty) needs the constant that normalising takes away:
`step.log_norm_N` turns the scores that come with it into logits again, z_i = s_i + log_norm_i, where

    log_norm_0 = the model's own,   log_norm_i = log_norm_{i−1} + logsumexp(f_i(s_{i−1}))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import function_of, is_model, shown
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import applied
from unspool.protocols import Pick, Preparing, Step, StepModel, Transform


def check_transforms(owner: str, transforms: Sequence[Any]) -> None:
    """Refuse what is no transform, in the words of the search that was given it."""
    for rule in transforms:
        fault = _fault(rule)
        if fault:
            raise TypeError(
                f"{owner}: {shown(rule)} cannot stand among the transforms: {fault}. "
                "Give transforms such as Temperature(0.8), TopP(0.9) or NoRepeatNgram(3)."
            )


def _fault(rule: Any) -> str:
    if isinstance(rule, type):
        return f"it is a class, so write {rule.__name__}(…)"
    if hasattr(rule, "streams"):
        return "it is a search of its own"
    if isinstance(rule, Pick):
        return "it is a pick, and only Sample takes one, as its last rule"
    if is_model(rule):
        return "it is a model"
    if not callable(rule):
        return "it is not callable"
    return "" if function_of(rule, 3) else "it is not a function of (scores, step, history)"


def prepared(transforms: Sequence[Transform], model: StepModel, job: Job) -> tuple[Transform, ...]:
    """The transforms for one job: those that must know the model or the job have looked at them."""
    rules = (*job.first, *transforms)
    return tuple(rule.prepare(model, job) if isinstance(rule, Preparing) else rule for rule in rules)


def on_logits(transforms: Sequence[Transform]) -> bool:
    """Whether one of them is defined on logits, for which normalised scores do not suffice."""
    return any(getattr(rule, "on_logits", False) for rule in transforms)


def reshape(step: Step, history: Sequence[Path], transforms: Sequence[Transform]) -> Tensor:
    """The scores that are drawn from: normalised before and after every transform."""
    if transforms and not on_logits(transforms):
        step = replace(step, log_norm_N=None)
    return reshaped(step, history, transforms)[0]


def reshaped(
    step: Step, history: Sequence[Path], transforms: Sequence[Transform]
) -> tuple[Tensor, Tensor | None]:
    """The same, and log_norm_k, which makes logits of them again, as the transforms have left these."""
    scores_NV = step.logp_NV
    for transform in transforms:
        moved_NV = applied(transform, scores_NV, step, history)
        if step.log_norm_N is not None:
            step = replace(step, log_norm_N=step.log_norm_N + moved_NV.logsumexp(dim=-1))
        scores_NV = torch.log_softmax(moved_NV, dim=-1)
    return scores_NV, step.log_norm_N
