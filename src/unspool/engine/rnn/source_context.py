"""What one row of a recurrent decoder is told about its source, as `nn.attention.context` has it.

    c = Σ_s α_s h_s,   α = softmax_s a(q, k_s)
    a = vᵀ tanh(q + k_s)   additive, q = W s_{t−1} and k_s = U h_s + b
    a = qᵀ k_s             bilinear and dot, q = s_{t−1}

The vectors of a source lie side by side, whatever other sources there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.attention import LOWEST, dot
from unspool.engine.cross_attention import softmax
from unspool.engine.kernel import kernel
from unspool.engine.simd import WIDTH, first, fma, fused, load, plus, spread, store, tanh, total

ZERO = np.float32(0)


@kernel
def additive(v: Any, q: Any, at: int, k: Any, to: int, width: int) -> Any:
    """vᵀ tanh(q[at …] + k[to …])."""
    even = width // WIDTH * WIDTH
    lanes = spread(ZERO)
    for i in range(0, even, WIDTH):
        lanes = fma(load(v, i), tanh(plus(load(q, at + i), load(k, to + i))), lanes)
    found = total(lanes)
    for i in range(even, width):
        found = fused(v[i], first(tanh(spread(q[at + i] + k[to + i]))), found)
    return found


@kernel
def weigh(
    v: Any, q: Any, at: int, k: Any, begin: int, length: int, width: int, alpha: Any, to: int, room: int
) -> None:
    """alpha[to : to + room]: α of the `length` keys that begin at row `begin` of k, then 0.

    The score is additive where v has weights. `room` is a multiple of WIDTH.
    """
    filled = (length + WIDTH - 1) // WIDTH * WIDTH
    for s in range(length):
        key = (begin + s) * width
        alpha[to + s] = additive(v, q, at, k, key, width) if v.size else dot(q, at, k, key, width)
    for s in range(length, filled):
        alpha[to + s] = LOWEST
    softmax(alpha, to, filled)
    for s in range(length, room):
        alpha[to + s] = ZERO


@kernel
def mix(alpha: Any, at: int, memory: Any, begin: int, length: int, width: int, out: Any, to: int) -> None:
    """out[to : to + width] = Σ_s α_s memory_s."""
    even = width // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        lanes = spread(ZERO)
        for s in range(length):
            lanes = fma(spread(alpha[at + s]), load(memory, (begin + s) * width + i), lanes)
        store(out, to + i, lanes)
    for i in range(even, width):
        found = ZERO
        for s in range(length):
            found = fused(alpha[at + s], memory[(begin + s) * width + i], found)
        out[to + i] = found
