"""Logits of one row to log-probabilities.

log p_i = (z_i − m) − log Σ_j e^(z_j − m),   m = max_j z_j

Two passes: the first finds the maximum and the sum together, block by block, the sum so far being scaled
where a block has a higher maximum than all before it. Sums are made in double precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.engine.compile_cache import Announced, version
from unspool.engine.kernel import entry, kernel
from unspool.engine.memory import lent
from unspool.engine.simd import (
    WIDTH,
    added,
    exp,
    first,
    higher,
    highest,
    load,
    nothing,
    plus,
    spread,
    store,
    summed,
)
from unspool.engine.threads import finish, meet, take

BLOCK = 256


@kernel
def log_softmax_into(z: Any, at: int, size: int, out: Any, to: int) -> Any:
    """out[to : to + size] of z[at : at + size]; returns what was taken away from every logit."""
    even = size // WIDTH * WIDTH
    top, mass = np.float32(-np.inf), 0.0
    for i in range(even, size):
        top = max(top, z[at + i])
    for i in range(even, size):
        mass += first(exp(spread(z[at + i] - top))) if z[at + i] != -np.inf else 0.0  # −∞ − (−∞) is no number
    for start in range(0, even, BLOCK):
        end = min(start + BLOCK, even)
        peak = spread(np.float32(-np.inf))
        for i in range(start, end, WIDTH):
            peak = higher(load(z, at + i), peak)
        best = highest(peak)
        if best > top:
            mass *= math.exp(top - best)
            top = best
        shift, sums = spread(-top if top > -np.inf else np.float32(0)), nothing()
        for i in range(start, end, WIDTH):
            sums = added(sums, exp(plus(load(z, at + i), shift)))
        mass += summed(sums)
    log_mass = np.float32(math.log(mass))
    shift, log_lanes = spread(-top), spread(-log_mass)
    for i in range(0, even, WIDTH):
        store(out, to + i, plus(plus(load(z, at + i), shift), log_lanes))
    for i in range(even, size):
        out[to + i] = (z[at + i] - top) - log_mass
    return top + log_mass


@kernel
def log_softmax(z: Any, at: int, size: int) -> Any:
    """The same in place."""
    return log_softmax_into(z, at, size, z, at)


# log_softmax of every row of a matrix of logits, several threads sharing the rows.
#
# log p_ni = z_ni − log Σ_j e^(z_nj)


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
