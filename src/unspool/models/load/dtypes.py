"""In which floating-point numbers a model is held and computes: by name, or as torch calls them."""

from __future__ import annotations

import torch

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def known_precision(dtype: str | torch.dtype) -> torch.dtype:
    """The precision of that name."""
    found = PRECISIONS.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in PRECISIONS.values():
        raise ValueError(
            f"dtype {dtype!r:.40} is unknown: choose from {', '.join(PRECISIONS)}, or the same from torch"
        )
    return found
