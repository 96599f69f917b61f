"""One step of a Transformer, as one compiled call.

    x ← s · embed(token) + position, normalised where the model says so
    for every layer:   h ← norm(x),  x ← x + W_out attention(W_qkv h),  h ← norm(x),  x ← x + W_down f(W_up h)
    hidden ← norm(x),  log p ← log_softmax(W_head hidden)

for any number of rows, a row being one token at one position of one sequence: the new tokens of a batch, or
the tokens of a prompt, which look at each other's keys and values as soon as all of them are stored. A
decoder's layers look at a source in between, and an encoder makes keys and values for them in the end
(`cross_attention`). Norms may stand where `nn.residual` has them, and normalise queries and keys; layers may
see a window, and differ in how they turn heads by their positions. Each of the functions here is one phase,
shared by all threads (`turns`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.engine.attention import BLOCK, ask_for_places, attend_past, keep_heads, own_heads
from unspool.engine.cross_attention import attend_source, look, store_source
from unspool.engine.int8_matmul import Inputs
from unspool.engine.kernel import NOUGHT, entry, kernel
from unspool.engine.layers import gated, multiply_by, norm, normalise, plain, rotate
from unspool.engine.matmul import gather, prepare, product, takes_ready
from unspool.engine.simd import add, copy
from unspool.engine.step_memory import Past, Rows, Said, Source, Work
from unspool.engine.threads import close, enter, entered, finish, leave, meet, open_to_all, take
from unspool.engine.weight_table import (
    ATTENTION_NORM,
    ATTENTION_OUT,
    ATTENTION_POST_NORM,
    CROSS_NORM,
    CROSS_OUT,
    CROSS_POST_NORM,
    CROSS_QUERY,
    DOWN,
    EMBED,
    EMBED_NORM,
    FEED_FORWARD_NORM,
    FEED_FORWARD_POST_NORM,
    GEGLU,
    HEAD,
    INPUTS,
    KEY_NORM,
    LAST_NORM,
    OUTPUTS,
    QKV,
    QUERY_NORM,
    RMS,
    SOURCE_KV,
    SWIGLU,
    UP,
    WEIGHT,
    Shape,
)

_share = multiply_by(product)
ALWAYS_RMS: Any = np.int64(RMS)
"""The norm of queries and keys: no constant, for which numba would compile `norm` anew."""


@kernel
def _multiply(part: Any, x: Any, rows: int, y: Any, work: Work, turns: Any, phase: int, threads: int) -> int:
    """y = x · Wᵀ + b; a phase of its own makes rows ready for weights that want it."""
    inputs = Inputs(x, work.ready)
    if takes_ready(part):
        n = take(turns, phase)
        while n < rows:
            prepare(part, inputs, n)
            n = finish(turns, phase)
        phase = meet(turns, phase, rows)
    return _share(part, inputs, rows, y, turns, phase, threads)


@kernel
def _activate(shape: Shape, whole: int, rows: int, work: Work, turns: Any, phase: int) -> int:
    """What stands between the two matrices of a feed-forward network."""
    inner = shape.inner_width
    n = take(turns, phase)
    while n < rows:
        at, to = n * whole, n * inner
        if shape.activation == SWIGLU or shape.activation == GEGLU:
            gated(shape.activation, work.up, at, at + inner, work.active, to, inner)
        else:
            plain(shape.activation, work.up, at, work.active, to, inner)
        n = finish(turns, phase)
    return meet(turns, phase, rows)


@kernel
def _enter(shape: Shape, part: Any, work: Work, n: int) -> None:
    """What a branch reads: h = norm(x), or x itself where the norm comes behind."""
    at = n * shape.width
    if shape.post or part[WEIGHT] == 0:
        copy(work.x, at, work.h, at, shape.width)
    else:
        norm(shape.norm, shape.norm_eps, part, work.x, at, shape.width, work.h, at)


@kernel
def _leave(shape: Shape, before: Any, after: Any, work: Work, n: int) -> None:
    """x ← x + y, where y, or the sum, may have a norm."""
    at = n * shape.width
    if after[WEIGHT]:
        norm(shape.norm, shape.norm_eps, after, work.y, at, shape.width, work.y, at)
    add(work.y, at, work.x, at, shape.width)
    if shape.post:
        norm(shape.norm, shape.norm_eps, before, work.x, at, shape.width, work.x, at)


@kernel
def _keep(shape: Shape, parts: Any, said: Said, work: Work, rows: int, n: int, depth: int) -> None:
    """What the head would read at a depth that was asked for."""
    width = shape.width
    for e in range(said.depths.size):
        if said.depths[e] == depth:
            _enter(shape, parts[shape.layers, LAST_NORM], work, n)
            copy(work.h, n * width, said.early, (e * rows + n) * width, width)


@kernel
def _begin(
    shape: Shape, parts: Any, rows: Rows, past: Past, work: Work, said: Said, turns: Any, phase: int
) -> int:
    """x ← s · embed(token) + position."""
    count, width = rows.positions.size, shape.width
    normed = parts[shape.layers, EMBED_NORM]
    n = take(turns, phase)
    while n < count:
        gather(parts[shape.layers, EMBED], rows.tokens[n], work.x, n)
        if shape.embed_scale != 1:
            for i in range(n * width, (n + 1) * width):
                work.x[i] *= np.float32(shape.embed_scale)
        if past.added.size:
            add(past.added, rows.positions[n] * width, work.x, n * width, width)
        if normed[WEIGHT]:
            norm(shape.norm, shape.norm_eps, normed, work.x, n * width, width, work.x, n * width)
        _keep(shape, parts, said, work, count, n, NOUGHT)
        _enter(shape, parts[0, ATTENTION_NORM], work, n)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _place(
    shape: Shape, mine: Any, layer: int, rows: Rows, past: Past, work: Work, turns: Any, phase: int
) -> int:
    """Normalise and turn queries and keys, and store keys and values in the row's last block.

    Without keys of their own, what the layer reads is stored in their place.
    """
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    count, table, kept = rows.positions.size, past.tables[layer], own_heads(shape)
    keys = NOUGHT if shape.keyless else K * I
    n = take(turns, phase)
    while n < count:
        at, position = n * mine[QKV, OUTPUTS], rows.positions[n]
        head, heads = NOUGHT, H + K if mine[QUERY_NORM, WEIGHT] else NOUGHT
        while head < heads:  # as many at a time as the gain is wide: one, or all
            part = mine[QUERY_NORM if head < H else KEY_NORM]
            width, begin = part[INPUTS], at + head * I
            norm(ALWAYS_RMS, shape.norm_eps, part, work.qkv, begin, width, work.qkv, begin)
            head += width // I
        if table >= 0:
            rotate(work.qkv, at, H + K, I, shape.turned_width, past.cos, past.sin, table + position)
        block = past.starts[rows.sequences[n], position // BLOCK]
        if n + 1 < count:
            ahead = past.starts[rows.sequences[n + 1], rows.positions[n + 1] // BLOCK]
            ask_for_places(kept, layer, rows.positions[n + 1], past.kv, ahead)
        behind = at + H * kept.key_width
        if shape.keyless:
            keep_heads(work.h, n * shape.width, kept, NOUGHT, layer, position, past.kv, block)
        else:
            keep_heads(work.qkv, behind, kept, NOUGHT, layer, position, past.kv, block)
        keep_heads(work.qkv, behind + keys, kept, NOUGHT + 1, layer, position, past.kv, block)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _between(
    shape: Shape, before: Any, after: Any, next_norm: Any, count: int, work: Work, turns: Any, phase: int
) -> int:
    """From one branch of a layer, with its norms, to the next one."""
    n = take(turns, phase)
    while n < count:
        _leave(shape, before, after, work, n)
        _enter(shape, next_norm, work, n)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _behind(
    shape: Shape, parts: Any, layer: int, count: int, work: Work, said: Said, turns: Any, phase: int
) -> int:
    """From the feed-forward network of one layer to the next layer."""
    mine = parts[layer]
    n = take(turns, phase)
    while n < count:
        _leave(shape, mine[FEED_FORWARD_NORM], mine[FEED_FORWARD_POST_NORM], work, n)
        _keep(shape, parts, said, work, count, n, layer + 1)
        if layer + 1 < shape.layers:
            _enter(shape, parts[layer + 1, ATTENTION_NORM], work, n)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _end(shape: Shape, parts: Any, rows: Rows, work: Work, said: Said, turns: Any, phase: int) -> int:
    """The last norm."""
    width, count = shape.width, rows.positions.size
    n = take(turns, phase)
    while n < count:
        _enter(shape, parts[shape.layers, LAST_NORM], work, n)
        copy(work.h, n * width, said.hidden, n * width, width)
        n = finish(turns, phase)
    return meet(turns, phase, count)


@kernel
def _choose(shape: Shape, rows: Rows, work: Work, said: Said, turns: Any, phase: int) -> int:
    """What the head reads of the rows that are wanted, side by side in y."""
    width, wanted = shape.width, rows.wanted
    n = take(turns, phase)
    while n < wanted.size:
        copy(said.hidden, wanted[n] * width, work.y, n * width, width)
        n = finish(turns, phase)
    return meet(turns, phase, wanted.size)


def phases(layers: int, readers: int = 0) -> int:
    """How many there are in a step, at most."""
    return 1 + 20 * layers + 3 * readers + 5


@kernel
def _walk(
    shape: Shape, parts: Any, rows: Rows, past: Past, source: Source, work: Work, said: Said, turns: Any,
    threads: int,
) -> None:  # fmt: skip
    """All phases, in order."""
    count: int = rows.positions.size
    phase: int = NOUGHT
    if rows.tokens.size:
        phase = _begin(shape, parts, rows, past, work, said, turns, phase)
        for layer in range(shape.layers):
            mine = parts[layer]
            phase = _multiply(mine[QKV], work.h, count, work.qkv, work, turns, phase, threads)
            phase = _place(shape, mine, layer, rows, past, work, turns, phase)
            phase = attend_past(shape, parts, layer, rows, past, work, turns, phase, threads)
            phase = _multiply(mine[ATTENTION_OUT], work.mixed, count, work.y, work, turns, phase, threads)
            before, after = mine[ATTENTION_NORM], mine[ATTENTION_POST_NORM]
            if shape.crosses:
                phase = _between(shape, before, after, mine[CROSS_NORM], count, work, turns, phase)
                phase = _multiply(mine[CROSS_QUERY], work.h, count, work.qkv, work, turns, phase, threads)
                phase = attend_source(shape, layer, rows, source, work, turns, phase, threads)
                if said.looked.size and layer == shape.layers - 1:
                    phase = look(shape, layer, rows, source, work, said, turns, phase)
                phase = _multiply(mine[CROSS_OUT], work.mixed, count, work.y, work, turns, phase, threads)
                before, after = mine[CROSS_NORM], mine[CROSS_POST_NORM]
            phase = _between(shape, before, after, mine[FEED_FORWARD_NORM], count, work, turns, phase)
            phase = _multiply(mine[UP], work.h, count, work.up, work, turns, phase, threads)
            phase = _activate(shape, mine[UP][OUTPUTS], count, work, turns, phase)
            phase = _multiply(mine[DOWN], work.active, count, work.y, work, turns, phase, threads)
            phase = _behind(shape, parts, layer, count, work, said, turns, phase)
        phase = _end(shape, parts, rows, work, said, turns, phase)
        for reader in range(len(parts) - shape.layers - 1):
            part = parts[shape.layers + 1 + reader, SOURCE_KV]
            phase = _multiply(part, said.hidden, count, work.qkv, work, turns, phase, threads)
            phase = store_source(shape, reader, rows, source, work, turns, phase)
    if rows.wanted.size:
        phase = _choose(shape, rows, work, said, turns, phase)
        head = parts[shape.layers, HEAD]
        phase = _multiply(head, work.y, rows.wanted.size, said.logp, work, turns, phase, threads)
        normalise(said.logp, said.log_norm, shape.logit_cap, turns, phase)


@kernel
def _take_part(
    shape: Shape, parts: Any, rows: Rows, past: Past, source: Source, work: Work, said: Said, turns: Any,
    threads: int, board: Any,
) -> None:  # fmt: skip
    """What the caller does, and what a helper does, who has 0 threads (`open_call`)."""
    call = (shape, parts, rows, past, source, work, said, turns, threads)
    if threads == 0:
        number = enter(board, call, NOUGHT)
        while number:
            _walk(*entered(board, call))
            leave(board)
            number = enter(board, call, number)
    else:
        if threads > 1:
            open_to_all(board, call)
        _walk(*call)
        if threads > 1:
            close(board)


def compiled_step(version: int) -> Callable[..., Any]:
    """The whole step, to be called from Python; kept on disk under its version."""

    @entry
    def step(
        shape: Shape, parts: Any, rows: Rows, past: Past, source: Source, work: Work, said: Said, turns: Any,
        threads: int, board: Any,
    ) -> int:  # fmt: skip
        _take_part(shape, parts, rows, past, source, work, said, turns, threads, board)
        return version

    return step
