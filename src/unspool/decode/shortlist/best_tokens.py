"""The best tokens of every row by compiled code, where there is some.

Greedy search wants the first of them, a beam a few. Of equal scores the smaller token comes first, as by
torch's way, which stands where it is wanted (`picks.argmax`, `search.candidates`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from unspool.decode.shortlist import chain

MOST = 128
"""More of a row than this are found faster by sorting it."""


def compiles(*numbers: Tensor) -> bool:
    """Whether compiled code can read them."""
    return chain.COMPILED and all(it.dtype == torch.float32 and it.device.type == "cpu" for it in numbers)


def compiled_best(scores_NV: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """(N, k) scores, best first, and their tokens; None where torch must find them.

    Of a row with fewer tokens that are not cut, the last are −∞ of token 0.
    """
    if not 0 < k <= MOST or not compiles(scores_NV):
        return None
    from unspool.engine.best_tokens import best_tokens  # only where numba is there

    return best_tokens(scores_NV, k)
