"""What a step must know of positions: cos and sin, vectors that are added, windows, buckets of distances.

Tables of the modules in `nn.positions`, longer than needed so that few are made; learnt positions are the
parameter's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.nn.positions import Learned, Rotary, Sinusoidal
from unspool.nn.relative_positions import RelativePositions

Numbers = NDArray[np.float32]
NOTHING = np.empty(0, np.float32)
UNTURNED = -1
ENDLESS = 2**62


class Tables:
    """cos, sin (tables · positions · I/2) and added vectors (positions · D), empty where a model has none.

    Layers have tables of their own (`begins`: at which place), or none, and see a window each (`windows`).
    `buckets` are those of relative positions, by distance.
    """

    def __init__(
        self,
        rotaries: Sequence[Rotary | None],
        added: Sinusoidal | Learned | None,
        windows: Sequence[int | None] = (),
        relative: RelativePositions | None = None,
    ) -> None:
        self._rotaries, self._added, self._relative = rotaries, added, relative
        self._reach = 0
        self.buckets = np.empty(0, np.int64)
        self.cos, self.sin, self.added = NOTHING, NOTHING, NOTHING
        self.begins = np.full(len(rotaries), UNTURNED)
        self.windows = np.full(len(rotaries), ENDLESS)
        for layer, window in enumerate(windows):
            self.windows[layer] = ENDLESS if window is None else window

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
        self._turn(places)
        if self._relative is not None:
            self.buckets = self._relative.bucket(torch.arange(1 - self._reach, self._reach)).numpy()
        if isinstance(self._added, Sinusoidal):
            self.added = _flat(self._added(places))

    def _turn(self, places: Tensor) -> None:
        different = [it for it in dict.fromkeys(self._rotaries) if it is not None]
        if not different:
            return
        made = [it.tables(places, self._reach) for it in different]
        half = made[0][0].shape[-1] // 2
        self.cos = _flat(torch.stack([cos[..., :half] for cos, _ in made]))
        self.sin = _flat(torch.stack([sin[..., half:] for _, sin in made]))
        for layer, rotary in enumerate(self._rotaries):
            self.begins[layer] = UNTURNED if rotary is None else different.index(rotary) * self._reach


def _flat(table: Tensor) -> Numbers:
    numbers: Numbers = table.detach().contiguous().view(-1).numpy()
    return numbers
