"""What a step must know of positions: cos and sin of a rotary model, vectors that others add.

Tables of the modules in `nn.positions`, longer than needed so that few are made; learnt positions are the
parameter's own memory.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.nn.positions import Learned, Rotary, Sinusoidal

Numbers = NDArray[np.float32]
NOTHING = np.empty(0, np.float32)


class Tables:
    """cos, sin (positions · I/2) and added vectors (positions · D), each empty where a model has none."""

    def __init__(self, rotary: Rotary | None, added: Sinusoidal | Learned | None) -> None:
        self._rotary, self._added = rotary, added
        self._reach = 0
        self.cos, self.sin, self.added = NOTHING, NOTHING, NOTHING

    def reach(self, length: int) -> None:
        """Let the tables hold every position below `length`."""
        if length <= self._reach:
            return
        self._reach = max(64, 2 * length)
        if isinstance(self._added, Learned):
            self._added.at(length - 1, self._added.weight.device)  # refuses what was not learnt
            self.added, self._reach = _flat(self._added.weight), self._added.num_embeddings
            return
        places = torch.arange(self._reach)[None]
        if self._rotary is not None:
            cos, sin = self._rotary.tables(places, self._reach)
            half = cos.shape[-1] // 2
            self.cos, self.sin = _flat(cos[..., :half]), _flat(sin[..., half:])
        if isinstance(self._added, Sinusoidal):
            self.added = _flat(self._added(places))


def _flat(table: Tensor) -> Numbers:
    numbers: Numbers = table.detach().contiguous().view(-1).numpy()
    return numbers
