"""What stands between the two matrices of a feed-forward network, as `nn.feed_forward` has it.

SwiGLU      silu(gate) · up,   silu(x) = x / (1 + e^−x)
GeGLU       gelu(gate) · up,   the GELU of tanh
SiLU        x / (1 + e^−x)
ReLU        max(x, 0)
GELU        x · Φ(x),   Φ(x) = ½ erfc(−x/√2): of negative x without 1 + erf, which would cancel
GELU, tanh  x / (1 + e^−2u),   u = √(2/π) (x + 0.044715 x³):  ½(1 + tanh u) is a sigmoid of 2u
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.kernels.exponential import sigmoid_times
from unspool.kernels.kernel import kernel, small_kernel
from unspool.kernels.lanes import WIDTH, first, fma, higher, load, spread, store, times
from unspool.nn.compiled.parts import GEGLU, GELU, GELU_TANH, RELU, SILU

HALF, ONE = np.float32(0.5), np.float32(1)
ROOT_HALF = np.float32(math.sqrt(0.5))
CUBE, STEEP = np.float32(0.044715), np.float32(2 * math.sqrt(2 / math.pi))


@small_kernel
def _steep(x: Any) -> Any:
    """2u."""
    return times(times(x, fma(times(x, x), spread(CUBE), spread(ONE))), spread(STEEP))


@kernel
def _gelu_tanh(x: Any) -> Any:
    return sigmoid_times(x, _steep(x))


@kernel
def gated(kind: int, x: Any, gate: int, up: int, y: Any, to: int, size: int) -> None:
    """y = f(x[gate …]) · x[up …], `size` numbers."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        g = load(x, gate + i)
        slope = _steep(g) if kind == GEGLU else g
        store(y, to + i, times(sigmoid_times(g, slope), load(x, up + i)))
    for i in range(even, size):
        g = spread(x[gate + i])
        slope = _steep(g) if kind == GEGLU else g
        y[to + i] = first(times(sigmoid_times(g, slope), spread(x[up + i])))


@kernel
def plain(kind: int, x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to …] = f(x[at …]), `size` numbers; x and y may be the same."""
    even = size // WIDTH * WIDTH
    if kind == RELU:
        zero = spread(np.float32(0))
        for i in range(0, even, WIDTH):
            store(y, to + i, higher(zero, load(x, at + i)))
        for i in range(even, size):
            y[to + i] = first(higher(zero, spread(x[at + i])))
    elif kind == GELU:
        for i in range(size):
            y[to + i] = x[at + i] * HALF * np.float32(math.erfc(-x[at + i] * ROOT_HALF))
    elif kind == GELU_TANH:
        for i in range(0, even, WIDTH):
            store(y, to + i, _gelu_tanh(load(x, at + i)))
        for i in range(even, size):
            y[to + i] = first(_gelu_tanh(spread(x[at + i])))
    elif kind == SILU:
        for i in range(0, even, WIDTH):
            lanes = load(x, at + i)
            store(y, to + i, sigmoid_times(lanes, lanes))
        for i in range(even, size):
            lanes = spread(x[at + i])
            y[to + i] = first(sigmoid_times(lanes, lanes))
