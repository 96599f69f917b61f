"""log_softmax of every row of a matrix of logits, several threads sharing the rows.

log p_ni = z_ni − log Σ_j e^(z_nj)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.kernels.compilation import Announced, version
from unspool.kernels.kernel import entry
from unspool.kernels.log_softmax import log_softmax_into
from unspool.kernels.spare_memory import lent
from unspool.kernels.turns import finish, meet, take

WORTH_SHARING = 200_000
"""Logits below which waking other threads takes longer than they would save."""


def compiled(version: int) -> Any:
    """The entry, kept on disk under its version."""

    @entry
    def normalise_rows(z: Any, rows: int, out: Any, turns: Any) -> int:
        """Every row that no other thread has taken."""
        size = z.size // rows
        row = take(turns, 0)
        while row < rows:
            log_softmax_into(z, row * size, size, out, row * size)
            row = finish(turns, 0)
        meet(turns, 0, rows)
        return version

    return normalise_rows


normalise_rows = Announced("log_softmax (once, a few seconds)", compiled(version()))


def log_softmax_rows(logits_NV: Tensor) -> Tensor:
    """(N, V) float32 on a CPU → (N, V)."""
    N, V = logits_NV.shape
    logp = lent(N * V)
    z = logits_NV.detach().contiguous().view(-1).numpy()
    threads = 1 if z.size < WORTH_SHARING else min(N, torch.get_num_threads())
    normalise_rows.shared(threads, z, N, logp, np.zeros(2, np.int64))
    return torch.from_numpy(logp).view(N, V)
