"""Leave nothing but given tokens in some rows.

    score′(x) = 0 if x is among the tokens else −∞

The tokens come back even where an earlier rule had cut them, and are equally probable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def force(scores_NV: Tensor, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """The scores with only `tokens` left in `rows`; the other rows as they are."""
    if not rows:
        return scores_NV
    only_V = torch.full_like(scores_NV[0], -math.inf)
    only_V[list(tokens)] = 0
    out_NV = scores_NV.clone()
    out_NV[list(rows)] = only_V
    return out_NV
