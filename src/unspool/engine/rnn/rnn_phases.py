"""What a step of a recurrent model and a pass of one over whole texts have in common.

Each of these functions but the smallest is one phase, shared by all threads (`turns`).
"""

from __future__ import annotations

from typing import Any

from unspool.engine import dense_matmul
from unspool.engine.dense_matmul import Outputs
from unspool.engine.kernel import NOUGHT, kernel
from unspool.engine.layers import multiply_by
from unspool.engine.memory import floats
from unspool.engine.rnn.recurrent_cells import gru, lstm
from unspool.engine.rnn.rnn_parts import LSTM, RNNShape, RNNWork
from unspool.engine.simd import WIDTH, first, load, spread, store, tanh
from unspool.engine.threads import finish, meet, take
from unspool.engine.weight_table import BIAS, INPUTS, OUTPUTS, WEIGHT


@kernel
def _product(part: Any, x: Any, rows: int, y: Any, first: int, last: int) -> None:
    """The outputs from `first` to `last` − 1 of every row: weights of these models are float32."""
    outputs, inputs = part[OUTPUTS], part[INPUTS]
    w, out = floats(part[WEIGHT], outputs * inputs), Outputs(y, outputs, NOUGHT)
    dense_matmul.product(w, inputs, x, rows, out, first, last)
    if part[BIAS]:
        bias = floats(part[BIAS], outputs)
        for n in range(rows):
            for o in range(first, last):
                y[n * outputs + o] += bias[o]


multiply = multiply_by(_product)


@kernel
def embed(part: Any, token: int, y: Any, to: int) -> None:
    """A token's row of the embedding into y[to …]."""
    width = part[INPUTS]
    w = floats(part[WEIGHT], part[OUTPUTS] * width)
    for i in range(width):
        y[to + i] = w[token * width + i]


@kernel
def advance(
    shape: RNNShape, h: Any, c: Any, work: RNNWork, starts: Any, t: int, count: int, y: Any, stride: int,
    to: int, turns: Any, phase: int,
) -> int:  # fmt: skip
    """One layer's cells of `count` rows, whose token is number starts[n] + t; h also into y."""
    H = shape.width
    G = (4 if shape.cell == LSTM else 3) * H
    n = take(turns, phase)
    while n < count:
        at = starts[n] + t
        if shape.cell == LSTM:
            lstm(work.gates, at * G, work.recur, n * G, h, c, n * H, H)
        else:
            gru(work.gates, at * G, work.recur, n * G, h, n * H, H)
        for i in range(H):
            y[at * stride + to + i] = h[n * H + i]
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _tanh(x: Any, at: int, size: int) -> None:
    even = size // WIDTH * WIDTH
    for i in range(at, at + even, WIDTH):
        store(x, i, tanh(load(x, i)))
    for i in range(at + even, at + size):
        x[i] = first(tanh(spread(x[i])))


@kernel
def bend(x: Any, rows: int, width: int, turns: Any, phase: int) -> int:
    """x ← tanh(x)."""
    n = take(turns, phase)
    while n < rows:
        _tanh(x, n * width, width)
        n = finish(turns, phase)
    return meet(turns, phase, rows)
