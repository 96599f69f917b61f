"""Convert and check arguments: numpy arrays or torch tensors of any float type and device, and scalars."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        raise TypeError(f"expected an array or tensor of real numbers, got {short_repr(x)}")
    return array


def as_float64(x: Any) -> Array:
    """x as a float64 array; exact for every float type of a model."""
    return as_numpy(x).astype(np.float64, copy=False)


def check_float(name: str, x: Any, low: float, high: float, expected: str) -> float:
    """x as a float strictly between low and high; otherwise TypeError or ValueError."""
    number = _as_scalar(x)
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} is {short_repr(x)}; expected {expected}")
    try:
        result = float(number)
    except OverflowError:
        result = inf
    if not low < result < high:
        raise ValueError(f"{name} is {short_repr(x)}; expected {expected}")
    return result


def check_int(name: str, x: Any, low: int, high: float, expected: str) -> int:
    """x as an int from low to high; otherwise TypeError or ValueError."""
    number = _as_scalar(x)
    is_int = isinstance(number, Integral) and not isinstance(number, bool)
    if not is_int or not low <= number <= high:
        raise (ValueError if is_int else TypeError)(f"{name} is {short_repr(x)}; expected {expected}")
    return int(number)


def _as_scalar(x: Any) -> Any:
    """x, or the number in an array or tensor without dimensions."""
    return x.tolist() if getattr(x, "ndim", None) == 0 else x


def check_token(i: Any, vocabulary: int) -> int:
    """i as a token id below the vocabulary size."""
    return check_int("token", i, 0, vocabulary - 1, f"a token id, 0 … {vocabulary - 1}")


def short_repr(x: Any) -> str:
    """A short repr of any value, for error messages."""
    try:
        return f"{x!r:.60}" if "\n" not in repr(x) else f"a {type(x).__name__}"
    except Exception:  # a broken repr, or an int that is too long to print
        return f"a {type(x).__name__}"


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
