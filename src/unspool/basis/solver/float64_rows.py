"""The rows of W as float64, from wherever and in whatever precision W lies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from unspool.basis.arrays import Array, Indices

BLOCK = 1024


class Float64Rows:
    """The rows of W as float64, block by block, from wherever W lies: W itself is never converted whole."""

    def __init__(self, W: Any) -> None:
        # A torch tensor keeps its type (numpy has no bfloat16), and a GPU's is copied to the host once.
        torch = hasattr(W, "detach")
        on_host: Any = W.detach().cpu() if torch else np.asarray(W)
        self.W, self.shape = on_host, tuple(on_host.shape)
        self._bfloat16 = str(on_host.dtype) == "torch.bfloat16"
        # The same memory; numpy gathers rows several times faster than torch does.
        self._array = on_host.numpy() if torch and not self._bfloat16 else on_host

    def __getitem__(self, index: Any) -> Array:
        if self._bfloat16:
            converted: Array = self.W[index].double().numpy()
            return converted
        block = self._array[index] if isinstance(index, slice) else self._array.take(index, axis=0)
        return np.asarray(block, dtype=np.float64)

    def blocks(self, index: Indices | None = None) -> Iterator[tuple[slice, Array]]:
        """These rows, or all: in blocks small enough that the conversion stays in the processor's cache."""
        count = self.shape[0] if index is None else len(index)
        for start in range(0, count, BLOCK):
            part = slice(start, min(start + BLOCK, count))
            yield part, self[part if index is None else index[part]]

    def without(self, columns_C: Indices) -> Float64Rows:
        """A copy without some columns."""
        kept = np.setdiff1d(np.arange(self.shape[1]), columns_C)
        return Float64Rows(self.W[:, kept])
