"""log_softmax of rows of logits.

log p_i = (z_i − m) − log Σ_j e^(z_j − m),   m = max_j z_j

Two passes: the first computes maximum and sum together, block by block, and rescales the sum when a block has
a higher maximum. Sums are in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.engine.compile_cache import CompiledEntry, kernel_version
from unspool.engine.kernel import entry, kernel
from unspool.engine.memory import empty_pooled
from unspool.engine.simd import (
    WIDTH,
    add_to_sums,
    first_element,
    load,
    splat,
    store,
    total_of_sums,
    vadd,
    vexp,
    vmax,
    vmax_element,
    zero_sums,
)
from unspool.engine.threads import barrier, claim, complete

BLOCK = 256


@kernel
def log_softmax_into(z: Any, at: int, size: int, out: Any, to: int) -> Any:
    """out[to : to + size] = log_softmax(z[at : at + size]); returns the log-normaliser m + log Σ."""
    even = size // WIDTH * WIDTH
    top, mass = np.float32(-np.inf), 0.0
    for i in range(even, size):
        top = max(top, z[at + i])
    for i in range(even, size):
        mass += (
            first_element(vexp(splat(z[at + i] - top))) if z[at + i] != -np.inf else 0.0
        )  # −∞ − (−∞) is NaN
    for start in range(0, even, BLOCK):
        end = min(start + BLOCK, even)
        peak = splat(np.float32(-np.inf))
        for i in range(start, end, WIDTH):
            peak = vmax(load(z, at + i), peak)
        best = vmax_element(peak)
        if best > top:
            mass *= math.exp(top - best)
            top = best
        shift, sums = splat(-top if top > -np.inf else np.float32(0)), zero_sums()
        for i in range(start, end, WIDTH):
            sums = add_to_sums(sums, vexp(vadd(load(z, at + i), shift)))
        mass += total_of_sums(sums)
    log_mass = np.float32(math.log(mass))
    shift, log_vector = splat(-top), splat(-log_mass)
    for i in range(0, even, WIDTH):
        store(out, to + i, vadd(vadd(load(z, at + i), shift), log_vector))
    for i in range(even, size):
        out[to + i] = (z[at + i] - top) - log_mass
    return top + log_mass


@kernel
def log_softmax(z: Any, at: int, size: int) -> Any:
    """log_softmax of z[at : at + size] in place; returns the log-normaliser."""
    return log_softmax_into(z, at, size, z, at)


WORTH_SHARING = 200_000
"""Fewer logits are faster in one thread."""


def compiled_log_softmax(version: int) -> Any:
    """The entry for a version."""

    @entry
    def normalise_rows(z: Any, rows: int, out: Any, queue: Any) -> int:
        size = z.size // rows
        row = claim(queue, 0)
        while row < rows:
            log_softmax_into(z, row * size, size, out, row * size)
            row = complete(queue, 0)
        barrier(queue, 0, rows)
        return version

    return normalise_rows


normalise_rows = CompiledEntry("log_softmax (once, a few seconds)", compiled_log_softmax(kernel_version()))


def log_softmax_rows(logits_NV: Tensor) -> Tensor:
    """(N, V) float32 on a CPU → (N, V)."""
    N, V = logits_NV.shape
    logp = empty_pooled(N * V)
    z = logits_NV.detach().contiguous().view(-1).numpy()
    threads = 1 if z.size < WORTH_SHARING else min(N, torch.get_num_threads())
    normalise_rows.run(threads, z, N, logp, np.zeros(2, np.int64))
    return torch.from_numpy(logp).view(N, V)
