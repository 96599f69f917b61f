"""A recurrent network over whole texts: a prompt, or the sources of an encoder.

    every layer and direction:   g ← W x + b of all tokens at once, then one by one h ← cell(g_t, U h + b′)

Texts stand side by side, the longer ones first, so that those which still go on are the first ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.kernel import kernel
from unspool.engine.rnn.rnn_parts import (
    BEGIN,
    INPUT_GATES,
    KEY,
    MEAN,
    STATE_GATES,
    Memory,
    RNNSaid,
    RNNShape,
    RNNWork,
    State,
    Texts,
)
from unspool.engine.rnn.rnn_phases import advance, bend, embed, multiply
from unspool.engine.threads import finish, meet, take
from unspool.engine.weight_table import EMBED

ZERO = np.float32(0)


@kernel
def read_all(
    shape: RNNShape,
    parts: Any,
    texts: Texts,
    state: State,
    work: RNNWork,
    turns: Any,
    phase: int,
    threads: int,
) -> int:
    """All layers over all tokens; what the last one says is in work.x."""
    M, B, H, D = texts.tokens.size, texts.starts.size, shape.width, shape.directions
    x, y = work.x, work.y
    if shape.layers % 2:  # they change places at every layer
        x, y = work.y, work.x
    m = take(turns, phase)
    while m < M:
        embed(parts[shape.layers * D, EMBED], texts.tokens[m], x, m * shape.embed_width)
        m = finish(turns, phase)
    phase = meet(turns, phase, M)
    for layer in range(shape.layers):
        for direction in range(D):
            net = layer * D + direction
            h, c = state.h[net * B * H : (net + 1) * B * H], state.c[net * B * H : (net + 1) * B * H]
            phase = multiply(parts[net, INPUT_GATES], x, M, work.gates, turns, phase, threads)
            for step in range(texts.active.size):
                t = texts.active.size - 1 - step if direction else step
                rows = texts.active[t]
                phase = multiply(parts[net, STATE_GATES], h, rows, work.recur, turns, phase, threads)
                phase = advance(
                    shape, h, c, work, texts.starts, t, rows, y, D * H, direction * H, turns, phase
                )
        x, y = y, x
    return phase


@kernel
def _summary(shape: RNNShape, texts: Texts, memory: Any, b: int, y: Any) -> None:
    """What is said about a whole text: the mean of its vectors, or what each direction says in the end."""
    H, E, begin, length = shape.width, shape.memory_width, texts.starts[b], texts.lengths[b]
    if shape.context == MEAN:
        for i in range(E):
            found = ZERO
            for t in range(length):
                found += memory[(begin + t) * E + i]
            y[b * E + i] = found / np.float32(length)
    else:
        for i in range(E):
            t = length - 1 if i < H else 0
            y[b * E + i] = memory[(begin + t) * E + i]


@kernel
def tell_decoder(
    shape: RNNShape, parts: Any, texts: Texts, memory: Memory, work: RNNWork, said: RNNSaid, turns: Any,
    phase: int, threads: int,
) -> int:  # fmt: skip
    """What an encoder has to say: vectors, keys, summaries, and the state with which a decoder begins."""
    M, B, E = texts.tokens.size, texts.starts.size, shape.memory_width
    own = parts[shape.layers * shape.directions]
    b = take(turns, phase)
    while b < B:
        _summary(shape, texts, work.x, b, work.context)
        for i in range(texts.starts[b] * E, (texts.starts[b] + texts.lengths[b]) * E):
            memory.vectors[i] = work.x[i]
        b = finish(turns, phase)
    phase = meet(turns, phase, B)
    if memory.keys.size:
        phase = multiply(own[KEY], work.x, M, memory.keys, turns, phase, threads)
    phase = multiply(own[BEGIN], work.context, B, said.begin, turns, phase, threads)
    return bend(said.begin, B, said.begin.size // B, turns, phase)
