"""Arrays from elsewhere (numpy or torch, any float type, any device) as numpy arrays."""

from __future__ import annotations

from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Indices = NDArray[np.intp]

# A softmax in float32 over 50,000 tokens sums to 1 within 3e-5.
SUM_TOLERANCE = 1e-3


def as_numpy(x: Any) -> NDArray[Any]:
    """The same numbers as a numpy array, copied only where they lie on a GPU or numpy lacks their type."""
    if hasattr(x, "detach"):  # a torch tensor; torch itself is not imported for it
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        x = x.numpy()
    return np.asarray(x)


def float64(x: Any) -> Array:
    """The same numbers in float64 (no float type of a model loses anything)."""
    return as_numpy(x).astype(np.float64, copy=False)


def probabilities(p: Any, vocabulary: int) -> Array:
    """p as float64, normalised; a ValueError that says what is wrong where it is no distribution."""
    p_V = as_numpy(p)
    if p_V.ndim != 1 or len(p_V) != vocabulary:
        raise ValueError(
            f"p has shape {p_V.shape}, but W has {vocabulary} rows: p must hold one probability for each "
            f"token of the model whose output matrix W is."
        )
    p_V = p_V.astype(np.float64)
    total, least = float(p_V.sum()), float(p_V.min(initial=np.inf))
    if isnan(total) or isnan(least):
        raise ValueError("p contains NaN; a model that gives NaN cannot be sampled from.")
    if least < 0:
        raise ValueError(
            f"p contains {least:.3g}; probabilities are not negative (are these log-probabilities?)."
        )
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ValueError(f"p sums to {total:.6g}, not to 1; give softmax probabilities computed in float32.")
    p_V /= total
    return p_V
