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

from functools import partial
from typing import Any

import numpy as np

from unspool.engine import weight_table as wt
from unspool.engine.attention import self_attention, self_kv_layout, store_heads
from unspool.engine.attention_tiles import BLOCK
from unspool.engine.compile_cache import RendezvousEntry
from unspool.engine.cross_attention import cross_attention, source_attention, store_source
from unspool.engine.kernel import INT64_ZERO, entry, kernel
from unspool.engine.layers import activation, gated_activation, log_softmax_phase, norm, rotate
from unspool.engine.matmul import Inputs, embed_row, matmul_phase
from unspool.engine.simd import add_floats, copy_floats
from unspool.engine.step_memory import (
    CacheAndPositions,
    SourceKV,
    StepOutputs,
    StepTokens,
    Workspace,
)
from unspool.engine.threads import chunk_phase, close_call, join_call, joined_arguments, leave_call, open_call
from unspool.engine.weight_table import ModelShape

INT64_RMS: Any = np.int64(wt.RMS)
"""The norm of queries and keys. numba would compile `norm` again for a literal constant."""


@kernel
def _branch_input(shape: ModelShape, part: Any, work: Workspace, n: int) -> None:
    """h = norm(x), or x if the norm is after the branch."""
    at = n * shape.width
    if shape.post or part[wt.WEIGHT] == 0:
        copy_floats(work.x, at, work.h, at, shape.width)
    else:
        norm(shape.norm, shape.norm_eps, part, work.x, at, shape.width, work.h, at)


@kernel
def _add_branch(shape: ModelShape, before: Any, after: Any, work: Workspace, n: int) -> None:
    """x ← x + y; y or the sum may be normalised."""
    at = n * shape.width
    if after[wt.WEIGHT]:
        norm(shape.norm, shape.norm_eps, after, work.y, at, shape.width, work.y, at)
    add_floats(work.y, at, work.x, at, shape.width)
    if shape.post:
        norm(shape.norm, shape.norm_eps, before, work.x, at, shape.width, work.x, at)


@kernel
def _store_early_exit(
    shape: ModelShape, parts: Any, depths: Any, early: Any, work: Workspace, n: int, depth: int
) -> None:
    """Store the input of the head if this depth is an early exit."""
    for e in range(depths.size):
        if depths[e] == depth:
            _branch_input(shape, parts[shape.layers, wt.LAST_NORM], work, n)
            copy_floats(work.h, n * shape.width, early, (n * depths.size + e) * shape.width, shape.width)


@chunk_phase
def _embed(
    n: int, shape: ModelShape, parts: Any, rows: StepTokens, added: Any, work: Workspace, depths: Any,
    early: Any,
) -> None:  # fmt: skip
    """x ← s · embed(token) + position."""
    at, width, embed_norm = n * shape.width, shape.width, parts[shape.layers, wt.EMBED_NORM]
    embed_row(parts[shape.layers, wt.EMBED], rows.tokens[n], work.x, n)
    if shape.embed_scale != 1:
        for i in range(at, at + width):
            work.x[i] *= np.float32(shape.embed_scale)
    if added.size:
        add_floats(added, rows.positions[n] * width, work.x, at, width)
    if embed_norm[wt.WEIGHT]:
        norm(shape.norm, shape.norm_eps, embed_norm, work.x, at, width, work.x, at)
    _store_early_exit(shape, parts, depths, early, work, n, INT64_ZERO)
    _branch_input(shape, parts[0, wt.ATTENTION_NORM], work, n)


@chunk_phase
def _store_kv(
    n: int, shape: ModelShape, parts: Any, layer: int, rows: StepTokens, context: CacheAndPositions,
    qkv: Any, h: Any,
) -> None:  # fmt: skip
    """Normalise and rotate queries and keys, and store keys and values in the KV cache.

    In keyless attention the layer's input is stored as the key.
    """
    H, K, I = shape.heads, shape.kv_heads, shape.head_width  # noqa: E741
    tables, layout = context.tables, self_kv_layout(shape)
    at, position = n * parts[wt.QKV, wt.OUTPUTS], rows.positions[n]
    head, heads = INT64_ZERO, H + K if parts[wt.QUERY_NORM, wt.WEIGHT] else INT64_ZERO
    while head < heads:  # the gain covers one head, or all
        part = parts[wt.QUERY_NORM if head < H else wt.KEY_NORM]
        width, begin = part[wt.INPUTS], at + head * I
        norm(INT64_RMS, shape.norm_eps, part, qkv, begin, width, qkv, begin)
        head += width // I
    if tables.begins[layer] >= 0:
        row = tables.begins[layer] + position
        rotate(qkv, at, H + K, I, shape.rotary_width, tables.cos, tables.sin, row)
    block = context.starts[rows.sequences[n], position // BLOCK]
    behind = at + H * layout.key_width
    if shape.keyless:
        store_heads(h, n * shape.width, layout, INT64_ZERO, layer, position, context.kv, block)
    else:
        store_heads(qkv, behind, layout, INT64_ZERO, layer, position, context.kv, block)
        behind += K * I
    store_heads(qkv, behind, layout, INT64_ZERO + 1, layer, position, context.kv, block)


@chunk_phase
def _activate(n: int, shape: ModelShape, up: Any, up_width: int, active: Any) -> None:
    """The activation between the two matrices of a feed-forward network."""
    at, inner, to = n * up_width, shape.inner_width, n * shape.inner_width
    if shape.activation == wt.SWIGLU or shape.activation == wt.GEGLU:
        gated_activation(shape.activation, up, at, at + inner, active, to, inner)
    else:
        activation(shape.activation, up, at, active, to, inner)


@chunk_phase
def _next_branch(n: int, shape: ModelShape, work: Workspace, before: Any, after: Any, next_norm: Any) -> None:
    """Add the output of a branch to x and compute the input of the next branch."""
    _add_branch(shape, before, after, work, n)
    _branch_input(shape, next_norm, work, n)


@chunk_phase
def _next_layer(
    n: int, shape: ModelShape, parts: Any, layer: int, work: Workspace, depths: Any, early: Any
) -> None:
    """Add the output of the feed-forward network to x and compute the input of the next layer."""
    _add_branch(shape, parts[layer, wt.FEED_FORWARD_NORM], parts[layer, wt.FEED_FORWARD_POST_NORM], work, n)
    _store_early_exit(shape, parts, depths, early, work, n, layer + 1)
    if layer + 1 < shape.layers:
        _branch_input(shape, parts[layer + 1, wt.ATTENTION_NORM], work, n)


@chunk_phase
def _final_norm(n: int, shape: ModelShape, part: Any, work: Workspace, hidden: Any) -> None:
    _branch_input(shape, part, work, n)
    copy_floats(work.h, n * shape.width, hidden, n * shape.width, shape.width)


@chunk_phase
def _gather_rows(n: int, width: int, wanted: Any, hidden: Any, y: Any) -> None:
    """Copy the head's input of the wanted rows to y, contiguously."""
    copy_floats(hidden, wanted[n] * width, y, n * width, width)


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
    depths, early, hidden = outputs.depths, outputs.early, outputs.hidden
    y, qkv, prepared = work.y, work.qkv, work.prepared
    h, mixed = Inputs(work.h, prepared), Inputs(work.mixed, prepared)
    phase: int = INT64_ZERO
    if rows.tokens.size:
        phase = _embed(queue, phase, count, shape, parts, rows, context.tables.added, work, depths, early)
        for layer in range(shape.layers):
            own = parts[layer]
            phase = matmul_phase(own[wt.QKV], h, count, qkv, queue, phase, threads)
            phase = _store_kv(queue, phase, count, shape, own, layer, rows, context, qkv, work.h)
            phase = self_attention(shape, parts, layer, rows, context, work, queue, phase, threads)
            phase = matmul_phase(own[wt.ATTENTION_OUT], mixed, count, y, queue, phase, threads)
            before, after = own[wt.ATTENTION_NORM], own[wt.ATTENTION_POST_NORM]
            if shape.crosses:
                phase = _next_branch(queue, phase, count, shape, work, before, after, own[wt.CROSS_NORM])
                phase = matmul_phase(own[wt.CROSS_QUERY], h, count, qkv, queue, phase, threads)
                phase = cross_attention(shape, layer, rows, source, work, queue, phase, threads)
                if outputs.source_attention.size and layer == shape.layers - 1:
                    attention = outputs.source_attention
                    phase = source_attention(queue, phase, count, shape, layer, rows, source, work, attention)
                phase = matmul_phase(own[wt.CROSS_OUT], mixed, count, y, queue, phase, threads)
                before, after = own[wt.CROSS_NORM], own[wt.CROSS_POST_NORM]
            phase = _next_branch(queue, phase, count, shape, work, before, after, own[wt.FEED_FORWARD_NORM])
            phase = matmul_phase(own[wt.UP], h, count, work.up, queue, phase, threads)
            phase = _activate(queue, phase, count, shape, work.up, own[wt.UP, wt.OUTPUTS], work.active)
            phase = matmul_phase(own[wt.DOWN], Inputs(work.active, prepared), count, y, queue, phase, threads)
            phase = _next_layer(queue, phase, count, shape, parts, layer, work, depths, early)
        phase = _final_norm(queue, phase, count, shape, parts[shape.layers, wt.LAST_NORM], work, hidden)
        for reader in range(len(parts) - shape.layers - 1):
            part = parts[shape.layers + 1 + reader, wt.SOURCE_KV]
            phase = matmul_phase(part, Inputs(hidden, prepared), count, qkv, queue, phase, threads)
            phase = store_source(queue, phase, count, shape, reader, rows, source, qkv)
    wanted = rows.wanted.size
    if wanted:
        phase = _gather_rows(queue, phase, wanted, shape.width, rows.wanted, hidden, y)
        head = parts[shape.layers, wt.HEAD]
        phase = matmul_phase(head, Inputs(y, prepared), wanted, outputs.logp, queue, phase, threads)
        log_softmax_phase(queue, phase, wanted, outputs.logp, outputs.log_norm, shape.logit_cap)


@kernel
def _run(call: Any, threads: int, mailbox: Any) -> None:
    """The part of the caller, or, if threads is 0, of a worker (`threads`)."""
    arguments = (*call, threads)
    if threads == 0:
        number = join_call(mailbox, arguments, INT64_ZERO)
        while number:
            _run_phases(*joined_arguments(mailbox, arguments))
            leave_call(mailbox)
            number = join_call(mailbox, arguments, number)
    else:
        if threads > 1:
            open_call(mailbox, arguments)
        _run_phases(*arguments)
        if threads > 1:
            close_call(mailbox)


@partial(RendezvousEntry, "the decoding step (once, about 10 seconds)")
@entry
def step(call: Any, threads: int, mailbox: Any) -> None:
    """One step; `call` holds the arguments of `_run_phases`. `_run` is a kernel: entries count references."""
    _run(call, threads, mailbox)
