"""Phases of the steps of Transformers and of recurrent models, each shared by all threads (`turns`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.engine.dense_matmul import piece_size
from unspool.engine.kernel import kernel, small_kernel
from unspool.engine.log_softmax import log_softmax
from unspool.engine.memory import floats
from unspool.engine.simd import (
    WIDTH,
    add,
    first,
    fma,
    fused,
    higher,
    load,
    plus,
    sigmoid_times,
    spread,
    store,
    tanh,
    times,
    total,
)
from unspool.engine.threads import finish, meet, take
from unspool.engine.weight_table import BIAS, GEGLU, GELU, GELU_TANH, INPUTS, OUTPUTS, RELU, RMS, SILU, WEIGHT


@kernel
def bend(z: Any, at: int, size: int, scale: Any, cap: Any) -> None:
    """z[at : at + size], in place.

    Scores bent to stay below a cap, as `heads.capped` and Gemma 2's attention have it.

    z ← c · tanh(s · z / c)
    """
    by, high = spread(np.float32(scale / cap)), spread(np.float32(cap))
    i, end = at, at + size
    while i < end:
        whole = i + WIDTH <= end
        bent = times(tanh(times(load(z, i) if whole else spread(z[i]), by)), high)
        if whole:
            store(z, i, bent)
            i += WIDTH
        else:
            z[i] = first(bent)
            i += 1


def multiply_by(product: Callable[..., Any]) -> Callable[..., int]:
    """The phase y = x · Wᵀ + b, by a kernel for the outputs from one number to another."""

    @kernel
    def multiply(part: Any, x: Any, rows: int, y: Any, turns: Any, phase: int, threads: int) -> int:
        outputs = part[OUTPUTS]
        size = piece_size(outputs, part[INPUTS], rows, threads)
        pieces = (outputs + size - 1) // size
        piece = take(turns, phase)
        while piece < pieces:
            product(part, x, rows, y, piece * size, min(outputs, (piece + 1) * size))
            piece = finish(turns, phase)
        return meet(turns, phase, pieces)

    return multiply


@kernel
def normalise(logp: Any, log_norm: Any, cap: Any, turns: Any, phase: int) -> int:
    """The logits of every row, bent to a cap where there is one, to log-probabilities, in place."""
    count = log_norm.size
    size = logp.size // count
    n = take(turns, phase)
    while n < count:
        if cap != 0:
            bend(logp, n * size, size, np.float32(1), cap)
        log_norm[n] = log_softmax(logp, n * size, size)
        n = finish(turns, phase)
    return meet(turns, phase, count)


# What stands between the two matrices of a feed-forward network, as `nn.feed_forward` has it.
#
# SwiGLU      silu(gate) · up,   silu(x) = x / (1 + e^−x)
# GeGLU       gelu(gate) · up,   the GELU of tanh
# SiLU        x / (1 + e^−x)
# ReLU        max(x, 0)
# GELU        x · Φ(x),   Φ(x) = ½ erfc(−x/√2): of negative x without 1 + erf, which would cancel
# GELU, tanh  x / (1 + e^−2u),   u = √(2/π) (x + 0.044715 x³):  ½(1 + tanh u) is a sigmoid of 2u


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


ZERO, ONE = np.float32(0), np.float32(1)


@kernel
def _mean(x: Any, at: int, width: int) -> Any:
    even = width // WIDTH * WIDTH
    lanes = spread(ZERO)
    for i in range(0, even, WIDTH):
        lanes = plus(lanes, load(x, at + i))
    found = total(lanes)
    for i in range(even, width):
        found += x[at + i]
    return found / np.float32(width)


@kernel
def _mean_square(x: Any, at: int, width: int, centre: Any) -> Any:
    even = width // WIDTH * WIDTH
    lanes, shift = spread(ZERO), spread(-centre)
    for i in range(0, even, WIDTH):
        away = plus(load(x, at + i), shift)
        lanes = fma(away, away, lanes)
    found = total(lanes)
    for i in range(even, width):
        found = fused(x[at + i] - centre, x[at + i] - centre, found)
    return found / np.float32(width)


@kernel
def norm(kind: int, eps: Any, part: Any, x: Any, at: int, width: int, y: Any, to: int) -> None:
    """y[to : to + width] = norm(x[at : at + width]); x and y may be the same.

    Normalisation of one row by its own statistics, as `nn.norms` has it.

    RMSNorm     y = x / √(mean x² + ε) · g
    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b
    """
    gain = floats(part[WEIGHT], width)
    centre = ZERO if kind == RMS else _mean(x, at, width)
    scale = ONE / np.sqrt(_mean_square(x, at, width, centre) + np.float32(eps))
    even, away, by = width // WIDTH * WIDTH, spread(-centre), spread(scale)
    for i in range(0, even, WIDTH):
        store(y, to + i, times(times(plus(load(x, at + i), away), by), load(gain, i)))
    for i in range(even, width):
        y[to + i] = (x[at + i] - centre) * scale * gain[i]
    if part[BIAS]:
        add(floats(part[BIAS], width), 0, y, to, width)


@kernel
def rotate(
    x: Any, at: int, heads: int, head_width: int, turned_width: int, cos: Any, sin: Any, place: int
) -> None:
    """The `heads` heads that begin at x[at], in place; `cos` and `sin` hold turned_width/2 for each place.

    Turning of queries and keys by their position, as `nn.positions` has it.

    (x₁, x₂) → (x₁ cos − x₂ sin, x₂ cos + x₁ sin),   the halves of what is turned of every head, its beginning
    """
    half = turned_width // 2
    turn = place * half
    for head in range(heads):
        left = at + head * head_width
        right = left + half
        for i in range(half):
            a, b = x[left + i], x[right + i]
            x[left + i] = a * cos[turn + i] - b * sin[turn + i]
            x[right + i] = b * cos[turn + i] + a * sin[turn + i]
