"""Normalisation of one row by its own statistics, as `nn.norms` has it.

RMSNorm     y = x / √(mean x² + ε) · g
LayerNorm   y = (x − mean x)/√(var x + ε) · g + b
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.addresses import floats
from unspool.kernels.kernel import kernel
from unspool.kernels.lanes import WIDTH, fma, fused, load, plus, spread, store, times, total
from unspool.kernels.vectors import add
from unspool.nn.compiled.parts import BIAS, RMS, WEIGHT

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
    """y[to : to + width] = norm(x[at : at + width]); x and y may be the same."""
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
