"""One step of a recurrent model, or a pass of one over whole texts, as one compiled call.

    x ← [embed(token) ; c_t],   every layer: x ← h ← cell(W x + b, U h + b′)
    hidden ← h, or tanh(W [h ; c_t] + b) where there is a source,   log p ← log_softmax(W_head hidden)

Each of the functions here is one phase, shared by all threads (`turns`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unspool.engine.kernel import NOUGHT, entry, kernel
from unspool.engine.layers import normalise
from unspool.engine.memory import floats
from unspool.engine.rnn.rnn_parts import (
    ADDITIVE,
    INPUT_GATES,
    MEAN,
    NO_CONTEXT,
    QUERY,
    READOUT,
    SCORE,
    STATE_GATES,
    Memory,
    RNNSaid,
    RNNShape,
    RNNWork,
    State,
    Texts,
)
from unspool.engine.rnn.rnn_pass import read_all, tell_decoder
from unspool.engine.rnn.rnn_phases import advance, bend, embed, multiply
from unspool.engine.rnn.source_context import mix, weigh
from unspool.engine.threads import finish, meet, take
from unspool.engine.weight_table import EMBED, HEAD, WEIGHT


@kernel
def _look(
    shape: RNNShape, own: Any, tokens: Any, top: Any, memory: Memory, work: RNNWork, said: RNNSaid,
    turns: Any, phase: int,
) -> int:  # fmt: skip
    """x ← [embed(token) ; c]."""
    N, D, E, A = tokens.size, shape.embed_width, shape.memory_width, shape.key_width
    S = said.looked.size // N
    query = work.query if shape.context == ADDITIVE else top
    v = floats(own[SCORE, WEIGHT], A if shape.context == ADDITIVE else 0)
    n = take(turns, phase)
    while n < N:
        embed(own[EMBED], tokens[n], work.x, n * (D + E))
        if shape.context > MEAN:
            begin, length = memory.begins[n], memory.lengths[n]
            weigh(v, query, n * A, memory.keys, begin, length, A, said.looked, n * S, S)
            mix(said.looked, n * S, memory.vectors, begin, length, E, work.context, n * E)
        elif shape.context != NO_CONTEXT:
            for i in range(E):
                work.context[n * E + i] = memory.vectors[memory.begins[n] * E + i]
        for i in range(E):
            work.x[n * (D + E) + D + i] = work.context[n * E + i]
        n = finish(turns, phase)
    return meet(turns, phase, N)


@kernel
def _read_out(
    shape: RNNShape, top: Any, count: int, work: RNNWork, said: RNNSaid, turns: Any, phase: int
) -> int:
    """[h ; c] into x where there is a source, and otherwise h into hidden."""
    H, E = shape.width, shape.memory_width
    n = take(turns, phase)
    while n < count:
        for i in range(H):
            if shape.context == NO_CONTEXT:
                said.hidden[n * H + i] = top[n * H + i]
            else:
                work.x[n * (H + E) + i] = top[n * H + i]
        for i in range(E):
            work.x[n * (H + E) + H + i] = work.context[n * E + i]
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _step(
    shape: RNNShape, parts: Any, tokens: Any, order: Any, state: State, memory: Memory, work: RNNWork,
    said: RNNSaid, turns: Any, phase: int, threads: int,
) -> int:  # fmt: skip
    """One token of every row."""
    N, H, L = tokens.size, shape.width, shape.layers
    own, top = parts[L], state.h[(L - 1) * N * H : L * N * H]
    if shape.context == ADDITIVE:
        phase = multiply(own[QUERY], top, N, work.query, turns, phase, threads)
    phase = _look(shape, own, tokens, top, memory, work, said, turns, phase)
    x, y = work.x, work.y
    for layer in range(L):
        h, c = state.h[layer * N * H : (layer + 1) * N * H], state.c[layer * N * H : (layer + 1) * N * H]
        phase = multiply(parts[layer, INPUT_GATES], x, N, work.gates, turns, phase, threads)
        phase = multiply(parts[layer, STATE_GATES], h, N, work.recur, turns, phase, threads)
        phase = advance(shape, h, c, work, order, NOUGHT, N, y, H, NOUGHT, turns, phase)
        x, y = y, x
    phase = _read_out(shape, top, N, work, said, turns, phase)
    if shape.context != NO_CONTEXT:
        phase = multiply(own[READOUT], work.x, N, said.hidden, turns, phase, threads)
        phase = bend(said.hidden, N, said.hidden.size // N, turns, phase)
    return phase


def phases(shape: RNNShape, longest: int) -> int:
    """How many there are in a call, at most: a pass, what an encoder tells, a step, and the head."""
    over_texts = 1 + shape.layers * shape.directions * (1 + 2 * longest) + 4
    return over_texts + 2 + 3 * shape.layers + 3 + 2


def compiled(version: int) -> Callable[..., Any]:
    """All that recurrent models do, to be called from Python; kept on disk under its version."""

    @entry
    def rnn(
        shape: RNNShape, parts: Any, texts: Texts, tokens: Any, order: Any, state: State, memory: Memory,
        work: RNNWork, said: RNNSaid, turns: Any, threads: int,
    ) -> int:  # fmt: skip
        phase: int = NOUGHT
        if texts.tokens.size:
            phase = read_all(shape, parts, texts, state, work, turns, phase, threads)
            if said.begin.size:
                phase = tell_decoder(shape, parts, texts, memory, work, said, turns, phase, threads)
        if tokens.size:
            phase = _step(shape, parts, tokens, order, state, memory, work, said, turns, phase, threads)
        if said.log_norm.size:
            head = parts[shape.layers * shape.directions, HEAD]
            phase = multiply(head, said.hidden, said.log_norm.size, said.logp, turns, phase, threads)
            normalise(said.logp, said.log_norm, shape.logit_cap, turns, phase)
        return version

    return rnn
