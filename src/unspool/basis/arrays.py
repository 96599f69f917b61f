"""Arrays from elsewhere (numpy or torch, any float type, any device) as numpy arrays; numbers as Python's.

What holds no numbers is refused in words.
"""

from __future__ import annotations

from math import inf, isnan
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Indices = NDArray[np.intp]

# A softmax in float32 over 50,000 tokens sums to 1 within 3e-5.
SUM_TOLERANCE = 1e-3
NUMBERS = "buif"
"""The kinds of numpy's types that are real numbers."""


def as_numpy(x: Any) -> NDArray[Any]:
    """The same numbers as a numpy array, copied only where they lie on a GPU or numpy lacks their type."""
    if hasattr(x, "detach"):  # a torch tensor; torch itself is not imported for it
        x = x.detach().cpu()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        x = x.numpy()
    try:
        found = np.asarray(x)
    except ValueError:  # rows of different lengths
        found = np.empty(0, dtype=object)
    if found.dtype.kind not in NUMBERS:
        raise TypeError(f"{shown(x)} holds no real numbers, where an array or a tensor of them is needed.")
    return found


def float64(x: Any) -> Array:
    """The same numbers in float64 (no float type of a model loses anything)."""
    return as_numpy(x).astype(np.float64, copy=False)


def real(x: Any) -> float | None:
    """A number of any kind, infinite beyond the largest; None for what is none, True and False included."""
    found = _plain(x)
    if isinstance(found, bool) or not isinstance(found, Real):
        return None
    try:
        return float(found)
    except OverflowError:
        return inf if found > 0 else -inf  # type: ignore[operator]


def whole(x: Any) -> int | None:
    """A whole number of any kind; None for what is none, True and False included."""
    found = _plain(x)
    return None if isinstance(found, bool) or not isinstance(found, Integral) else int(found)


def _plain(x: Any) -> Any:
    """Python's own number of an array or a tensor that holds one."""
    return x.tolist() if getattr(x, "ndim", None) == 0 else x


def checked_token(i: Any, vocabulary: int) -> int:
    """The number of a token, if it is one."""
    found = whole(i)
    if found is None:
        raise TypeError(f"Token {shown(i)} is a {type(i).__name__}; give its number, 0 … {vocabulary - 1}.")
    if not 0 <= found < vocabulary:
        raise ValueError(
            f"Token {shown(i)} is not in the vocabulary: W has {vocabulary} rows, 0 … {vocabulary - 1}."
        )
    return found


def masses(name: str, p: Any) -> Array:
    """Probabilities (V,) as float64, which need not sum to 1: what is left of a distribution will do."""
    p_V = float64(p)
    if p_V.ndim != 1 or not len(p_V):
        raise ValueError(f"{name} has shape {p_V.shape}; expected one probability for each token, (V,).")
    least, most = float(p_V.min()), float(p_V.max())
    if not 0 <= least <= most < inf:  # NaN is neither
        wrong = least if not least >= 0 else most
        raise ValueError(
            f"{name} contains {wrong:.3g}; expected probabilities (are these log-probabilities?)."
        )
    return p_V


def shown(x: Any) -> str:
    """A value as an error shows it: short, whatever it is."""
    try:
        return f"{x!r:.60}" if "\n" not in repr(x) else f"a {type(x).__name__}"
    except Exception:  # a repr may do anything, and a number may be too long to print
        return f"a {type(x).__name__}"


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
