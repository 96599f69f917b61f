"""Convert and check probabilities: numpy arrays or torch tensors of any float type and device."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import shown

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Indices = NDArray[np.intp]

# A softmax in float32 over 50,000 tokens sums to 1 within 3e-5.
SUM_TOLERANCE = 1e-3


def as_numpy(x: Any) -> NDArray[Any]:
    """x as a numpy array; copied only from a GPU or if numpy lacks its type."""
    if hasattr(x, "detach"):  # a torch tensor; avoids importing torch
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        x = x.numpy()
    try:
        array = np.asarray(x)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "buif":
        raise TypeError(f"expected an array or tensor of real numbers, got {shown(x)}")
    return array


def as_float64(x: Any) -> Array:
    """x as a float64 array; exact for every float type of a model."""
    return as_numpy(x).astype(np.float64, copy=False)


def as_masses(name: str, p: Any) -> Array:
    """Non-negative masses (V,) as float64; they need not sum to 1."""
    p_V = as_float64(p)
    if p_V.ndim != 1 or not len(p_V):
        raise ValueError(f"{name} has shape {p_V.shape}; expected one probability per token, (V,)")
    low, high = float(p_V.min()), float(p_V.max())
    if not 0 <= low <= high < inf:  # also false for NaN
        wrong = low if not low >= 0 else high
        raise ValueError(f"{name} contains {wrong:.3g}, not probabilities (are these log-probabilities?)")
    return p_V


def as_distribution(p: Any, vocabulary: int) -> Array:
    """p as a normalised float64 distribution (V,); raises ValueError if it is not one."""
    p_V = as_numpy(p)
    if p_V.ndim != 1 or len(p_V) != vocabulary:
        raise ValueError(
            f"p has shape {p_V.shape}, but W has {vocabulary} rows; expected one probability per row of W"
        )
    total = float(as_masses("p", p_V).sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ValueError(f"p sums to {total:.6g}, not to 1; expected a softmax in float32 or better")
    return as_float64(p_V) / total
