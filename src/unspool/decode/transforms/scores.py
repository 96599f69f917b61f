"""What every transform asks of the scores that it is given, and how tokens are cut from them.

One reduction finds all that can be wrong with a row: its maximum is NaN if any score is, −∞ if every
token is cut, and +∞ if a score is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.decode.arguments import shown
from unspool.decode.hypothesis import Hypothesis
from unspool.interfaces import Step, Transform

OURS = __name__.partition(".")[0]
"""The package whose transforms check their own scores."""


def peaks(scores_NV: Tensor, history: Sequence[Hypothesis] | None = None) -> Tensor:
    """The largest score of every row, (N, 1); refuses scores that cannot be drawn from."""
    if scores_NV.dim() != 2 or scores_NV.shape[1] == 0 or not scores_NV.is_floating_point():
        raise ValueError(
            f"scores have shape {tuple(scores_NV.shape)} and dtype {scores_NV.dtype}, but must be a matrix "
            "of floats, (hypotheses, tokens). For one row, pass scores[None]."
        )
    if history is not None and len(history) != scores_NV.shape[0]:
        raise ValueError(
            f"{scores_NV.shape[0]} rows of scores came with {len(history)} hypotheses, but row i belongs to "
            "hypothesis i. Select both with the same rows."
        )
    peak_N1 = scores_NV.amax(dim=-1, keepdim=True)
    if not torch.isfinite(peak_N1).all():
        _refuse(peak_N1)
    return peak_N1


def _refuse(peak_N1: Tensor) -> None:
    row = int((~torch.isfinite(peak_N1[:, 0])).nonzero()[0, 0])
    worst = float(peak_N1[row, 0])
    if math.isnan(worst):
        fault, advice = "holds NaN", "Look for an overflow in the model (half precision?) or in its weights."
    elif worst > 0:
        fault, advice = "holds +∞", "Log-probabilities are at most 0: look for an overflow in the model."
    else:
        fault, advice = "has no token left (all are −∞)", "Look at what came before this rule."
    raise ValueError(f"row {row} of the scores {fault}, so nothing can be drawn from it. {advice}")


def applied(rule: Transform, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:
    """What a transform returns; refuses what nothing can be drawn from.

    Values are checked, and cast to the scores' dtype, if the transform is a user's own.
    """
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
            f"{shown(rule)} made {fault} of scores of shape {tuple(scores_NV.shape)}: a transform must "
            "return a tensor of floats of that shape"
        )
    made_NV: Tensor = made
    if type(rule).__module__.partition(".")[0] == OURS:
        return made_NV
    peak_N = made_NV.amax(dim=-1)
    if not torch.isfinite(peak_N).all():
        peaks(scores_NV)  # it may be the model's fault
        row = int((~torch.isfinite(peak_N)).nonzero()[0, 0])
        worst = float(peak_N[row])
        held = "NaN" if math.isnan(worst) else "+∞" if worst > 0 else "−∞ only"
        raise ValueError(
            f"{shown(rule)} made {held} of row {row} of the scores: a transform must leave at least one "
            "finite score in every row, and neither NaN nor +∞"
        )
    return made_NV.to(scores_NV)


def precise(scores_NV: Tensor) -> Tensor:
    """The scores in float32 at least: sums of thousands of half-precision probabilities mean nothing."""
    return scores_NV.to(torch.promote_types(scores_NV.dtype, torch.float32))


def alive(scores_NV: Tensor) -> Tensor:
    """True where no rule has cut the token yet."""
    return scores_NV > -math.inf


def cut(scores_NV: Tensor, keep_NV: Tensor) -> Tensor:
    """The scores with every token outside `keep_NV` at −∞."""
    return scores_NV.masked_fill(~keep_NV, -math.inf)


def ban_each(scores_NV: Tensor, step: Step, banned: Sequence[tuple[int, int]]) -> Tensor:
    """The scores with the token of each (row, token) banned; as they are where there is none."""
    if not banned:
        return scores_NV
    row_M, token_M = torch.tensor(banned, device=scores_NV.device).unbind(1)
    banned_NV = torch.zeros_like(scores_NV, dtype=torch.bool)
    banned_NV[row_M, token_M] = True
    return ban(scores_NV, step, banned_NV)


def ban(scores_NV: Tensor, step: Step, banned_NV: Tensor) -> Tensor:
    """The scores with every banned token at −∞, and yet a token left in every row.

    Where all that earlier rules left is banned, the ban wins: the row becomes the token that the model itself
    finds most probable among those not banned. A ban on every token of the model cannot be obeyed: that row
    is left as it was.
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


class Truncation(ABC):
    """A transform that is known by the set of tokens it keeps.

    The shape of a truncation: a rule that keeps some tokens of each row and cuts the others.

        score′(x) = score(x) if x ∈ keeps(p) else −∞

    A truncation looks at one row's probabilities and at nothing else, so a sampler that only needs to know
    whether a drawn token survives may ask `keeps` and leave the scores alone.
    """

    @abstractmethod
    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where a token survives; at least one of every row does, and none that was cut before."""

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        """The scores with every token that the rule does not keep at −∞."""
        peaks(scores_NV)
        return cut(scores_NV, self.keeps(scores_NV))


# Where a ranking is cut, found without sorting the whole vocabulary where its first tokens decide.
#
# Nucleus-like rules rank the tokens of a row and keep the first c of them, c depending on the mass of those
# ranked before. The first 256 decide almost always; the rows that they do not decide are sorted.
#
# Ties: tokens with equal keys are ranked by id, the lower first (as argmax does).


HEAD = 256

Head = Callable[[Tensor, Tensor], Tensor]
"""(key_NK, token_NK): the first K of every row → (N) how many are kept; 0 where they do not decide."""

Whole = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(R): some rows → the key of the last token kept, (R, 1), and how many are kept, (R)."""


def edges(key_NV: Tensor, head: Head, whole: Whole) -> tuple[Tensor, Tensor]:
    """The key of the last token kept by every row, (N, 1), and how many are kept, (N)."""
    if key_NV.shape[1] <= 2 * HEAD:
        return whole(torch.arange(len(key_NV), device=key_NV.device))
    key_NK, token_NK = key_NV.topk(HEAD)
    count_N = head(key_NK, token_NK)
    edge_N1 = key_NK.gather(1, (count_N - 1).clamp(min=0)[:, None])
    rows_R = (count_N == 0).nonzero()[:, 0]
    if len(rows_R):
        edge_N1[rows_R], count_N[rows_R] = whole(rows_R)
    return edge_N1, count_N


def first(key_NV: Tensor, edge_N1: Tensor, count_N: Tensor) -> Tensor:
    """The mask of the first count_N tokens of every row, given the key of the last of them."""
    keep_NV = key_NV >= edge_N1
    surplus_N = keep_NV.sum(dim=-1) - count_N
    rows_R = surplus_N.nonzero()[:, 0]
    if len(rows_R):
        # More tokens share the last key than may stay: those with the highest ids go.
        tied_RV = key_NV[rows_R] == edge_N1[rows_R]
        from_the_end_RV = tied_RV.flip(-1).cumsum(-1).flip(-1)
        keep_NV[rows_R] &= ~(tied_RV & (from_the_end_RV <= surplus_N[rows_R, None]))
    return keep_NV


def ascending(key_RV: Tensor) -> Tensor:
    """Every row sorted, the smallest first. On a CPU by numpy: its vectorised sort is ten times torch's."""
    if key_RV.device.type != "cpu":
        return key_RV.sort(dim=-1).values
    return torch.from_numpy(np.sort(key_RV.detach().numpy(), axis=-1))


def rounding(vocabulary: int) -> float:
    """Twice the largest relative error ever seen in a float32 softmax over so many tokens, in any order.

    A boundary closer than this is left to the plain definition, errors included: what it computes is what
    other tools keep.
    """
    return 1e-5 + 3e-9 * vocabulary
