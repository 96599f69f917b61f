"""Arrays from elsewhere (numpy or torch, any float type, any device) as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Array32 = NDArray[np.float32]
Indices = NDArray[np.intp]


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
