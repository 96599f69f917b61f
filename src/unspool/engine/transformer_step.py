"""One step of a Transformer as one compiled call.

    x ← s · embed(token) + position, normalised if the model has an embedding norm
    for every layer:   h ← norm(x),  x ← x + W_out attention(W_qkv h),  h ← norm(x),  x ← x + W_down f(W_up h)
    hidden ← norm(x),  log p ← log_softmax(W_head hidden)

for any number of rows. A row is one token at one position of one sequence: the new tokens of a batch, or the
tokens of a prompt, which attend to each other's keys and values as soon as all are stored. Between
self-attention and feed-forward, the layers of a decoder attend to a source; an encoder ends with the keys and
values for them (`cross_attention`). Norms may be before or after a branch or a sum (`nn.norms`), queries
and keys may be normalised, and layers may differ in window and rotary angles. Each function below is one
phase, which all threads share (`threads`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.engine.attention import BLOCK, prefetch_kv_writes, self_attention, self_kv_layout, store_heads
from unspool.engine.cross_attention import cross_attention, source_attention, store_source
from unspool.engine.int8_matmul import Inputs
from unspool.engine.kernel import INT64_ZERO, entry, kernel
from unspool.engine.layers import activation, gated_activation, log_softmax_phase, matmul_phase, norm, rotate
from unspool.engine.matmul import embed_row, needs_prepared_inputs, prepare, product
from unspool.engine.simd import add_floats, copy_floats
from unspool.engine.step_memory import CacheAndPositions, SourceKV, StepOutputs, StepTokens, Workspace
from unspool.engine.threads import (
    barrier,
    claim,
    close_call,
    complete,
    join_call,
    joined_arguments,
    leave_call,
    open_call,
)
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
    ModelShape,
)

_matmul_chunks = matmul_phase(product)
INT64_RMS: Any = np.int64(RMS)
"""The norm of queries and keys. numba would compile `norm` again for a literal constant."""


@kernel
def _multiply(
    part: Any, x: Any, rows: int, y: Any, work: Workspace, queue: Any, phase: int, threads: int
) -> int:
    """y = x · Wᵀ + b; for INT8 weights, a phase before it prepares the rows."""
    inputs = Inputs(x, work.prepared)
    if needs_prepared_inputs(part):
        n = claim(queue, phase)
        while n < rows:
            prepare(part, inputs, n)
            n = complete(queue, phase)
        phase = barrier(queue, phase, rows)
    return _matmul_chunks(part, inputs, rows, y, queue, phase, threads)


@kernel
def _activate(shape: ModelShape, up_width: int, rows: int, work: Workspace, queue: Any, phase: int) -> int:
    """The activation between the two matrices of a feed-forward network."""
    inner = shape.inner_width
    n = claim(queue, phase)
    while n < rows:
        at, to = n * up_width, n * inner
        if shape.activation == SWIGLU or shape.activation == GEGLU:
            gated_activation(shape.activation, work.up, at, at + inner, work.active, to, inner)
        else:
            activation(shape.activation, work.up, at, work.active, to, inner)
        n = complete(queue, phase)
    return barrier(queue, phase, rows)


@kernel
def _branch_input(shape: ModelShape, part: Any, work: Workspace, n: int) -> None:
    """h = norm(x), or x if the norm is after the branch."""
    at = n * shape.width
    if shape.post or part[WEIGHT] == 0:
        copy_floats(work.x, at, work.h, at, shape.width)
    else:
        norm(shape.norm, shape.norm_eps, part, work.x, at, shape.width, work.h, at)


@kernel
def _add_branch(shape: ModelShape, before: Any, after: Any, work: Workspace, n: int) -> None:
    """x ← x + y; y or the sum may be normalised."""
    at = n * shape.width
    if after[WEIGHT]:
        norm(shape.norm, shape.norm_eps, after, work.y, at, shape.width, work.y, at)
    add_floats(work.y, at, work.x, at, shape.width)
    if shape.post:
        norm(shape.norm, shape.norm_eps, before, work.x, at, shape.width, work.x, at)


@kernel
def _store_early_exit(
    shape: ModelShape, parts: Any, outputs: StepOutputs, work: Workspace, rows: int, n: int, depth: int
) -> None:
    """Store the input of the head if this depth is an early exit."""
    width = shape.width
    for e in range(outputs.depths.size):
        if outputs.depths[e] == depth:
            _branch_input(shape, parts[shape.layers, LAST_NORM], work, n)
            copy_floats(work.h, n * width, outputs.early, (e * rows + n) * width, width)


@kernel
def _embed(
    shape: ModelShape,
    parts: Any,
    rows: StepTokens,
    context: CacheAndPositions,
    work: Workspace,
    outputs: StepOutputs,
    queue: Any,
    phase: int,
) -> int:
    """x ← s · embed(token) + position."""
    count, width = rows.positions.size, shape.width
    embed_norm = parts[shape.layers, EMBED_NORM]
    n = claim(queue, phase)
    while n < count:
        embed_row(parts[shape.layers, EMBED], rows.tokens[n], work.x, n)
        if shape.embed_scale != 1:
            for i in range(n * width, (n + 1) * width):
                work.x[i] *= np.float32(shape.embed_scale)
        if context.added.size:
            add_floats(context.added, rows.positions[n] * width, work.x, n * width, width)
        if embed_norm[WEIGHT]:
            norm(shape.norm, shape.norm_eps, embed_norm, work.x, n * width, width, work.x, n * width)
        _store_early_exit(shape, parts, outputs, work, count, n, INT64_ZERO)
        _branch_input(shape, parts[0, ATTENTION_NORM], work, n)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _store_kv(
    shape: ModelShape,
    layer_parts: Any,
    layer: int,
    rows: StepTokens,
    context: CacheAndPositions,
    work: Workspace,
    queue: Any,
    phase: int,
) -> int:
    """Normalise and rotate queries and keys, and store keys and values in the KV cache.

    In keyless attention the layer's input is stored as the key.
    """
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    count, table, layout = rows.positions.size, context.tables[layer], self_kv_layout(shape)
    keys = INT64_ZERO if shape.keyless else K * I
    n = claim(queue, phase)
    while n < count:
        at, position = n * layer_parts[QKV, OUTPUTS], rows.positions[n]
        head, heads = INT64_ZERO, H + K if layer_parts[QUERY_NORM, WEIGHT] else INT64_ZERO
        while head < heads:  # the gain covers one head, or all
            part = layer_parts[QUERY_NORM if head < H else KEY_NORM]
            width, begin = part[INPUTS], at + head * I
            norm(INT64_RMS, shape.norm_eps, part, work.qkv, begin, width, work.qkv, begin)
            head += width // I
        if table >= 0:
            rotate(work.qkv, at, H + K, I, shape.rotary_width, context.cos, context.sin, table + position)
        block = context.starts[rows.sequences[n], position // BLOCK]
        if n + 1 < count:
            ahead = context.starts[rows.sequences[n + 1], rows.positions[n + 1] // BLOCK]
            prefetch_kv_writes(layout, layer, rows.positions[n + 1], context.kv, ahead)
        behind = at + H * layout.key_width
        if shape.keyless:
            store_heads(work.h, n * shape.width, layout, INT64_ZERO, layer, position, context.kv, block)
        else:
            store_heads(work.qkv, behind, layout, INT64_ZERO, layer, position, context.kv, block)
        store_heads(work.qkv, behind + keys, layout, INT64_ZERO + 1, layer, position, context.kv, block)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _next_branch(
    shape: ModelShape,
    before: Any,
    after: Any,
    next_norm: Any,
    count: int,
    work: Workspace,
    queue: Any,
    phase: int,
) -> int:
    """Add the output of a branch to x and compute the input of the next branch."""
    n = claim(queue, phase)
    while n < count:
        _add_branch(shape, before, after, work, n)
        _branch_input(shape, next_norm, work, n)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _next_layer(
    shape: ModelShape,
    parts: Any,
    layer: int,
    count: int,
    work: Workspace,
    outputs: StepOutputs,
    queue: Any,
    phase: int,
) -> int:
    """Add the output of the feed-forward network to x and compute the input of the next layer."""
    layer_parts = parts[layer]
    n = claim(queue, phase)
    while n < count:
        _add_branch(shape, layer_parts[FEED_FORWARD_NORM], layer_parts[FEED_FORWARD_POST_NORM], work, n)
        _store_early_exit(shape, parts, outputs, work, count, n, layer + 1)
        if layer + 1 < shape.layers:
            _branch_input(shape, parts[layer + 1, ATTENTION_NORM], work, n)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _final_norm(
    shape: ModelShape,
    parts: Any,
    rows: StepTokens,
    work: Workspace,
    outputs: StepOutputs,
    queue: Any,
    phase: int,
) -> int:
    """The final norm, into outputs.hidden."""
    width, count = shape.width, rows.positions.size
    n = claim(queue, phase)
    while n < count:
        _branch_input(shape, parts[shape.layers, LAST_NORM], work, n)
        copy_floats(work.h, n * width, outputs.hidden, n * width, width)
        n = complete(queue, phase)
    return barrier(queue, phase, count)


@kernel
def _gather_wanted(
    shape: ModelShape, rows: StepTokens, work: Workspace, outputs: StepOutputs, queue: Any, phase: int
) -> int:
    """Copy the head's input of the wanted rows to y, contiguously."""
    width, wanted = shape.width, rows.wanted
    n = claim(queue, phase)
    while n < wanted.size:
        copy_floats(outputs.hidden, wanted[n] * width, work.y, n * width, width)
        n = complete(queue, phase)
    return barrier(queue, phase, wanted.size)


def count_phases(layers: int, readers: int = 0) -> int:
    """The number of phases of a step, at most."""
    return 1 + 20 * layers + 3 * readers + 5


@kernel
def _run_phases(
    shape: ModelShape, parts: Any, rows: StepTokens, context: CacheAndPositions, source: SourceKV,
    work: Workspace, outputs: StepOutputs, queue: Any, threads: int,
) -> None:  # fmt: skip
    """All phases in order."""
    count: int = rows.positions.size
    phase: int = INT64_ZERO
    if rows.tokens.size:
        phase = _embed(shape, parts, rows, context, work, outputs, queue, phase)
        for layer in range(shape.layers):
            layer_parts = parts[layer]
            phase = _multiply(layer_parts[QKV], work.h, count, work.qkv, work, queue, phase, threads)
            phase = _store_kv(shape, layer_parts, layer, rows, context, work, queue, phase)
            phase = self_attention(shape, parts, layer, rows, context, work, queue, phase, threads)
            phase = _multiply(
                layer_parts[ATTENTION_OUT], work.mixed, count, work.y, work, queue, phase, threads
            )
            before, after = layer_parts[ATTENTION_NORM], layer_parts[ATTENTION_POST_NORM]
            if shape.crosses:
                phase = _next_branch(shape, before, after, layer_parts[CROSS_NORM], count, work, queue, phase)
                phase = _multiply(
                    layer_parts[CROSS_QUERY], work.h, count, work.qkv, work, queue, phase, threads
                )
                phase = cross_attention(shape, layer, rows, source, work, queue, phase, threads)
                if outputs.source_attention.size and layer == shape.layers - 1:
                    phase = source_attention(shape, layer, rows, source, work, outputs, queue, phase)
                phase = _multiply(
                    layer_parts[CROSS_OUT], work.mixed, count, work.y, work, queue, phase, threads
                )
                before, after = layer_parts[CROSS_NORM], layer_parts[CROSS_POST_NORM]
            phase = _next_branch(
                shape, before, after, layer_parts[FEED_FORWARD_NORM], count, work, queue, phase
            )
            phase = _multiply(layer_parts[UP], work.h, count, work.up, work, queue, phase, threads)
            phase = _activate(shape, layer_parts[UP][OUTPUTS], count, work, queue, phase)
            phase = _multiply(layer_parts[DOWN], work.active, count, work.y, work, queue, phase, threads)
            phase = _next_layer(shape, parts, layer, count, work, outputs, queue, phase)
        phase = _final_norm(shape, parts, rows, work, outputs, queue, phase)
        for reader in range(len(parts) - shape.layers - 1):
            part = parts[shape.layers + 1 + reader, SOURCE_KV]
            phase = _multiply(part, outputs.hidden, count, work.qkv, work, queue, phase, threads)
            phase = store_source(shape, reader, rows, source, work, queue, phase)
    if rows.wanted.size:
        phase = _gather_wanted(shape, rows, work, outputs, queue, phase)
        head = parts[shape.layers, HEAD]
        phase = _multiply(head, work.y, rows.wanted.size, outputs.logp, work, queue, phase, threads)
        log_softmax_phase(outputs.logp, outputs.log_norm, shape.logit_cap, queue, phase)


@kernel
def _run(
    shape: ModelShape, parts: Any, rows: StepTokens, context: CacheAndPositions, source: SourceKV,
    work: Workspace, outputs: StepOutputs, queue: Any, threads: int, mailbox: Any,
) -> None:  # fmt: skip
    """The part of the caller, or, if threads is 0, of a worker (`threads`)."""
    call = (shape, parts, rows, context, source, work, outputs, queue, threads)
    if threads == 0:
        number = join_call(mailbox, call, INT64_ZERO)
        while number:
            _run_phases(*joined_arguments(mailbox, call))
            leave_call(mailbox)
            number = join_call(mailbox, call, number)
    else:
        if threads > 1:
            open_call(mailbox, call)
        _run_phases(*call)
        if threads > 1:
            close_call(mailbox)


@entry
def step(
    shape: ModelShape, parts: Any, rows: StepTokens, context: CacheAndPositions, source: SourceKV,
    work: Workspace, outputs: StepOutputs, queue: Any, threads: int, mailbox: Any,
) -> None:  # fmt: skip
    """One step; `_run` is a kernel, because an entry would count references."""
    _run(shape, parts, rows, context, source, work, outputs, queue, threads, mailbox)
