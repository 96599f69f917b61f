"""One row of a recurrent layer, one token on, as `nn.rnn` has it.

    GRU    r, z = σ(g + u),   n = tanh(g_n + r ⊙ u_n),   h ← n + z ⊙ (h − n)
    LSTM   i, f, o = σ(g + u),   c ← f ⊙ c + i ⊙ tanh(g_g + u_g),   h ← o ⊙ tanh(c)

g is W x_t + b and u is U h_{t−1} + b′, both computed before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.kernel import kernel
from unspool.engine.simd import WIDTH, first, fma, load, plus, sigmoid_times, spread, store, tanh, times

ONE = np.float32(1)


@kernel
def _sigmoid(x: Any) -> Any:
    return sigmoid_times(spread(ONE), x)


@kernel
def _gru(reset: Any, keep: Any, new: Any, recurred: Any, h: Any) -> Any:
    fresh = tanh(fma(_sigmoid(reset), recurred, new))
    return fma(_sigmoid(keep), plus(h, times(fresh, spread(-ONE))), fresh)


@kernel
def gru(g: Any, at: int, u: Any, by: int, h: Any, to: int, width: int) -> None:
    """h[to : to + width] in place, from three gates' numbers at g[at] and u[by]."""
    even = width // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        reset = plus(load(g, at + i), load(u, by + i))
        keep = plus(load(g, at + width + i), load(u, by + width + i))
        new, recurred = load(g, at + 2 * width + i), load(u, by + 2 * width + i)
        store(h, to + i, _gru(reset, keep, new, recurred, load(h, to + i)))
    for i in range(even, width):
        reset, keep = spread(g[at + i] + u[by + i]), spread(g[at + width + i] + u[by + width + i])
        new, recurred = spread(g[at + 2 * width + i]), spread(u[by + 2 * width + i])
        h[to + i] = first(_gru(reset, keep, new, recurred, spread(h[to + i])))


@kernel
def _lstm_cell(take: Any, keep: Any, new: Any, c: Any) -> Any:
    return fma(_sigmoid(take), tanh(new), times(_sigmoid(keep), c))


@kernel
def lstm(g: Any, at: int, u: Any, by: int, h: Any, c: Any, to: int, width: int) -> None:
    """h and c[to : to + width] in place, from four gates' numbers at g[at] and u[by]."""
    even = width // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        take = plus(load(g, at + i), load(u, by + i))
        keep = plus(load(g, at + width + i), load(u, by + width + i))
        new = plus(load(g, at + 2 * width + i), load(u, by + 2 * width + i))
        out = plus(load(g, at + 3 * width + i), load(u, by + 3 * width + i))
        cell = _lstm_cell(take, keep, new, load(c, to + i))
        store(c, to + i, cell)
        store(h, to + i, times(_sigmoid(out), tanh(cell)))
    for i in range(even, width):
        take, keep = spread(g[at + i] + u[by + i]), spread(g[at + width + i] + u[by + width + i])
        new = spread(g[at + 2 * width + i] + u[by + 2 * width + i])
        out = spread(g[at + 3 * width + i] + u[by + 3 * width + i])
        cell = _lstm_cell(take, keep, new, spread(c[to + i]))
        c[to + i] = first(cell)
        h[to + i] = first(times(_sigmoid(out), tanh(cell)))
