"""Tokens that a table has rows for: compiled code looks at no index twice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def in_vocabulary(tokens: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The tokens, side by side in memory; one that is not below `size` is refused."""
    if tokens.min(initial=0) < 0 or tokens.max(initial=0) >= size:
        raise IndexError(
            f"a token is {tokens.min()} or {tokens.max()}, and this model has those from 0 to {size - 1}"
        )
    # For each type and each kind of layout a kernel would be compiled anew.
    return np.ascontiguousarray(tokens, np.int64)
