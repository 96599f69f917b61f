"""Layers of the compiled Transformer step: activations, norms, rotary positions, soft cap, log-softmax.

    SwiGLU      silu(gate) · up,   silu(x) = x / (1 + e^−x)
    GeGLU       gelu(gate) · up,   GELU with tanh
    SiLU        x / (1 + e^−x)
    ReLU        max(x, 0)
    GELU        x · Φ(x),   Φ(x) = ½ erfc(−x/√2), because 1 + erf would cancel for negative x
    GELU, tanh  x / (1 + e^−2u),   u = √(2/π) (x + 0.044715 x³):  ½(1 + tanh u) is a sigmoid of 2u

The torch modules with the same equations are in `nn`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspool.engine.kernel import floats_at, inline_kernel, kernel
from unspool.engine.log_softmax import log_softmax
from unspool.engine.simd import (
    WIDTH,
    add_floats,
    first_element,
    fma,
    load,
    scalar_fma,
    splat,
    store,
    vadd,
    vmax,
    vmul,
    vmul_sigmoid,
    vsum,
    vtanh,
)
from unspool.engine.threads import chunk_phase
from unspool.engine.weight_table import BIAS, GEGLU, GELU, GELU_TANH, RELU, RMS, WEIGHT


@kernel
def soft_cap(z: Any, at: int, size: int, scale: Any, cap: Any) -> None:
    """z ← c · tanh(s · z / c) in place for z[at : at + size]: soft-capped scores, as in Gemma 2."""
    factor, limit = splat(np.float32(scale / cap)), splat(np.float32(cap))
    i, end = at, at + size
    while i < end:
        is_whole = i + WIDTH <= end
        capped = vmul(vtanh(vmul(load(z, i) if is_whole else splat(z[i]), factor)), limit)
        if is_whole:
            store(z, i, capped)
            i += WIDTH
        else:
            z[i] = first_element(capped)
            i += 1


@chunk_phase
def log_softmax_phase(n: int, logp: Any, log_norm: Any, cap: Any) -> None:
    """Turn the logits of each row, capped if cap ≠ 0, into log-probabilities in place."""
    size = logp.size // log_norm.size
    if cap != 0:
        soft_cap(logp, n * size, size, np.float32(1), cap)
    log_norm[n] = log_softmax(logp, n * size, size)


ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
ROOT_HALF = np.float32(math.sqrt(0.5))
GELU_CUBIC, GELU_SLOPE = np.float32(0.044715), np.float32(2 * math.sqrt(2 / math.pi))


@inline_kernel
def _activate(kind: int, x: Any) -> Any:
    """f(x) of a vector, for all but the exact GELU."""
    if kind == RELU:
        return vmax(splat(ZERO), x)
    if kind in (GELU_TANH, GEGLU):
        slope = vmul(vmul(x, fma(vmul(x, x), splat(GELU_CUBIC), splat(ONE))), splat(GELU_SLOPE))
        return vmul_sigmoid(x, slope)
    return vmul_sigmoid(x, x)


@kernel
def gated_activation(kind: int, x: Any, gate: int, up: int, y: Any, to: int, size: int) -> None:
    """y[to …] = f(x[gate …]) · x[up …] for `size` numbers."""
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, vmul(_activate(kind, load(x, gate + i)), load(x, up + i)))
    for i in range(even, size):
        y[to + i] = first_element(vmul(_activate(kind, splat(x[gate + i])), splat(x[up + i])))


@kernel
def activation(kind: int, x: Any, at: int, y: Any, to: int, size: int) -> None:
    """y[to …] = f(x[at …]) for `size` numbers; x and y may be the same."""
    if kind == GELU:
        for i in range(size):
            y[to + i] = x[at + i] * HALF * np.float32(math.erfc(-x[at + i] * ROOT_HALF))
        return
    even = size // WIDTH * WIDTH
    for i in range(0, even, WIDTH):
        store(y, to + i, _activate(kind, load(x, at + i)))
    for i in range(even, size):
        y[to + i] = first_element(_activate(kind, splat(x[at + i])))


@kernel
def _mean(x: Any, at: int, width: int) -> Any:
    even = width // WIDTH * WIDTH
    vector = splat(ZERO)
    for i in range(0, even, WIDTH):
        vector = vadd(vector, load(x, at + i))
    sum_ = vsum(vector)
    for i in range(even, width):
        sum_ += x[at + i]
    return sum_ / np.float32(width)


@kernel
def _mean_square(x: Any, at: int, width: int, centre: Any) -> Any:
    even = width // WIDTH * WIDTH
    vector, shift = splat(ZERO), splat(-centre)
    for i in range(0, even, WIDTH):
        difference = vadd(load(x, at + i), shift)
        vector = fma(difference, difference, vector)
    sum_ = vsum(vector)
    for i in range(even, width):
        sum_ = scalar_fma(x[at + i] - centre, x[at + i] - centre, sum_)
    return sum_ / np.float32(width)


@kernel
def norm(kind: int, eps: Any, part: Any, x: Any, at: int, width: int, y: Any, to: int) -> None:
    """y[to : to + width] = norm(x[at : at + width]); x and y may be the same.

    RMSNorm     y = x / √(mean x² + ε) · g
    LayerNorm   y = (x − mean x)/√(var x + ε) · g + b
    """
    gain = floats_at(part[WEIGHT], width)
    centre = ZERO if kind == RMS else _mean(x, at, width)
    scale = ONE / np.sqrt(_mean_square(x, at, width, centre) + np.float32(eps))
    even, shift, factor = width // WIDTH * WIDTH, splat(-centre), splat(scale)
    for i in range(0, even, WIDTH):
        store(y, to + i, vmul(vmul(vadd(load(x, at + i), shift), factor), load(gain, i)))
    for i in range(even, width):
        y[to + i] = (x[at + i] - centre) * scale * gain[i]
    if part[BIAS]:
        add_floats(floats_at(part[BIAS], width), 0, y, to, width)


@kernel
def rotate(
    x: Any, at: int, heads: int, head_width: int, rotary_width: int, cos: Any, sin: Any, position: int
) -> None:
    """Rotate the `heads` heads at x[at] in place; `cos` and `sin` hold rotary_width/2 numbers per position.

    (x₁, x₂) → (x₁ cos − x₂ sin, x₂ cos + x₁ sin),   x₁ and x₂ the halves of the first rotary_width numbers
    """
    half = rotary_width // 2
    angle = position * half
    for head in range(heads):
        left = at + head * head_width
        right = left + half
        for i in range(half):
            a, b = x[left + i], x[right + i]
            x[left + i] = a * cos[angle + i] - b * sin[angle + i]
            x[right + i] = b * cos[angle + i] + a * sin[angle + i]
