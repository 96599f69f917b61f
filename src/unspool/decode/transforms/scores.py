"""Shared parts of transforms: checks of scores, bans, truncations and the tokens that a transform keeps.

The maximum of a row shows all faults: it is NaN if any score is NaN, −∞ if every token is cut, and +∞ if any
score is +∞.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import Checked, function_of, shown
from unspool.decode.hypothesis import Hypothesis
from unspool.interfaces import Step, Transform

PACKAGE = __name__.partition(".")[0]
"""Transforms of this package check their own scores."""


def peaks(scores_NV: Tensor, history: Sequence[Hypothesis] | None = None) -> Tensor:
    """The largest score of every row, (N, 1); refuses NaN, +∞ and empty rows."""
    if scores_NV.dim() != 2 or scores_NV.shape[1] == 0 or not scores_NV.is_floating_point():
        raise ValueError(
            f"scores have shape {tuple(scores_NV.shape)} and dtype {scores_NV.dtype}, but must be a matrix "
            "of floats, (hypotheses, tokens). For one row, pass scores[None]."
        )
    if history is not None and len(history) != scores_NV.shape[0]:
        raise ValueError(
            f"{scores_NV.shape[0]} rows of scores came with {len(history)} hypotheses: "
            "select both with the same rows"
        )
    peak_N1 = scores_NV.amax(dim=-1, keepdim=True)
    if not torch.isfinite(peak_N1).all():
        row, fault = _find_fault(peak_N1[:, 0])
        raise ValueError(f"row {row} of the scores holds {fault}. {ADVICE[fault]}")
    return peak_N1


def _find_fault(peak_N: Tensor) -> tuple[int, str]:
    """The first row without a finite maximum, and what it holds."""
    row = int((~torch.isfinite(peak_N)).nonzero()[0, 0])
    worst = float(peak_N[row])
    return row, "NaN" if math.isnan(worst) else "+∞" if worst > 0 else "−∞ only"


ADVICE = {
    "NaN": "Check the model for overflow (half precision?) and its weights.",
    "+∞": "Check the model for overflow.",
    "−∞ only": "No token is left: check the transforms before this one.",
}


def applied(rule: Transform, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
    """Apply a transform; the result of a user's transform is checked and cast to the dtype of the scores."""
    made: Any = rule(scores_NV, step, history)  # a user may return anything
    fault = None
    if not isinstance(made, Tensor):
        fault = shown(made)
    elif made.shape != scores_NV.shape:
        fault = f"a tensor of shape {tuple(made.shape)}"
    elif not made.is_floating_point():
        fault = f"a tensor of {made.dtype}"
    if fault is not None:
        raise TypeError(
            f"{shown(rule)} returned {fault} for scores of shape {tuple(scores_NV.shape)}: a transform must "
            "return a tensor of floats of that shape"
        )
    made_NV: Tensor = made
    if type(rule).__module__.partition(".")[0] == PACKAGE:
        return made_NV
    peak_N = made_NV.amax(dim=-1)
    if not torch.isfinite(peak_N).all():
        peaks(scores_NV)  # the scores may be wrong before the transform
        row, fault = _find_fault(peak_N)
        raise ValueError(
            f"{shown(rule)} returned {fault} in row {row} of the scores: a transform must leave at least one "
            "finite score in every row, and neither NaN nor +∞"
        )
    return made_NV.to(scores_NV)


def precise(scores_NV: Tensor) -> Tensor:
    """The scores in float32 or better, because sums in half precision are too inexact."""
    return scores_NV.to(torch.promote_types(scores_NV.dtype, torch.float32))


def alive(scores_NV: Tensor) -> Tensor:
    return scores_NV > -math.inf


def cut(scores_NV: Tensor, keep_NV: Tensor) -> Tensor:
    """The scores with every token outside `keep_NV` at −∞."""
    return scores_NV.masked_fill(~keep_NV, -math.inf)


def ban_each(scores_NV: Tensor, step: Step, banned: Sequence[tuple[int, int]]) -> Tensor:
    if not banned:
        return scores_NV
    row_M, token_M = torch.tensor(banned, device=scores_NV.device).unbind(1)
    banned_NV = torch.zeros_like(scores_NV, dtype=torch.bool)
    banned_NV[row_M, token_M] = True
    return ban(scores_NV, step, banned_NV)


def ban(scores_NV: Tensor, step: Step, banned_NV: Tensor) -> Tensor:
    """Set every banned token to −∞, and leave at least one token in every row.

    If earlier transforms left only banned tokens, the row becomes the model's most probable token that is not
    banned. If every token is banned, the row does not change.
    """
    out_NV = scores_NV.masked_fill(banned_NV, -math.inf)
    empty_R = (out_NV.amax(dim=-1) == -math.inf).nonzero()[:, 0]
    if len(empty_R) == 0:
        return out_NV
    free_RV = step.logp_NV[empty_R].masked_fill(banned_NV[empty_R], -math.inf)
    best_R1 = free_RV.argmax(dim=-1, keepdim=True)
    only_RV = torch.full_like(scores_NV[empty_R], -math.inf).scatter(1, best_R1, 0.0)
    possible_R1 = free_RV.amax(dim=-1, keepdim=True) > -math.inf
    out_NV[empty_R] = torch.where(possible_R1, only_RV, scores_NV[empty_R])
    return out_NV


class Truncation(Checked, ABC):
    """A transform that keeps some tokens of each row and cuts the others.

        score′(x) = score(x) if x ∈ keeps(p) else −∞

    A truncation depends only on the probabilities of the row.
    """

    @abstractmethod
    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for tokens that survive: at least one of every row, and none that was cut before."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV)
        return cut(scores_NV, self.keeps(scores_NV))


def survivors(rule: Transform, logp: Tensor, history: Sequence[Hypothesis] = ()) -> Tensor:
    """True for tokens that survive `rule`: f(log p)(x) > −∞; (V) → (V) or (N, V) → (N, V).

    `logp` are log-probabilities, or scores up to a constant for each row. `history` has a hypothesis for each
    row, for transforms that depend on the text; without it, every hypothesis is empty.
    """
    if not function_of(rule, 3):
        raise TypeError(f"the rule is {shown(rule)}, but must be a transform such as TopP(0.9).")
    if not isinstance(logp, Tensor):
        raise TypeError(f"logp is {shown(logp)}, but must be a tensor: torch.tensor([…]).")
    scores_NV = logp[None] if logp.dim() == 1 else logp
    peaks(scores_NV)
    if not isinstance(history, Sequence) or not all(
        isinstance(hypothesis, Hypothesis) for hypothesis in history
    ):
        raise TypeError(f"history is {shown(history)}, but must be a list of Hypotheses, one for each row.")
    logp_NV = torch.log_softmax(scores_NV, dim=-1)
    hypotheses = history or [Hypothesis(row, 0, ()) for row in range(len(logp_NV))]
    return alive(applied(rule, logp_NV, Step(logp_NV), hypotheses)).view_as(logp)
