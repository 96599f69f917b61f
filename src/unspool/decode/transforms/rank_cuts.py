"""Where a ranking is cut, found without sorting the whole vocabulary where its first tokens decide.

Nucleus-like rules rank the tokens of a row and keep the first c of them, c depending on the mass of those
ranked before. The first 256 decide almost always; the rows that they do not decide are sorted.

Ties: tokens with equal keys are ranked by id, the lower first (as argmax does).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

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
