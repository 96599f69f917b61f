"""Attention of rows to their own past: one phase of a step, shared by all threads (`turns`).

Of many rows a thread takes several at a time with all heads, of a few rows some heads of one.
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.addresses import floats
from unspool.kernels.kernel import NOUGHT, kernel
from unspool.kernels.stack_memory import reserve
from unspool.kernels.turns import finish, meet, take
from unspool.nn.compiled.attention import SCRATCH, View, attend, fetch, heads_at_a_time, own_heads
from unspool.nn.compiled.parts import INPUTS, OUTPUTS, QKV, RELATIVE, WEIGHT, Shape
from unspool.nn.compiled.step_memory import Past, Rows, Work

MANY = 16
"""Rows from which on a thread takes several of them."""
BESIDE = 4
"""So many."""


@kernel
def attend_past(
    shape: Shape, parts: Any, layer: int, rows: Rows, past: Past, work: Work, turns: Any, phase: int,
    threads: int,
) -> int:  # fmt: skip
    """Every head of every row, into work.mixed."""
    H, kept, count = shape.heads, own_heads(shape), rows.positions.size
    size, relative = parts[layer, QKV, OUTPUTS], parts[shape.layers, RELATIVE]
    numbers = floats(relative[WEIGHT], relative[OUTPUTS] * relative[INPUTS])
    view = View(
        past.kv, past.starts, rows.sequences, rows.reach, True, past.windows[layer], shape.attention_cap,
        numbers, past.buckets, rows.positions, relative[INPUTS],
    )  # fmt: skip
    p = floats(reserve(SCRATCH + NOUGHT), SCRATCH)
    beside, each = BESIDE if count >= MANY else 1, heads_at_a_time(H, count, threads)
    cuts = H // each
    pieces = (count + beside - 1) // beside * cuts
    piece = take(turns, phase)
    while piece < pieces:
        n, head = piece // cuts * beside, piece % cuts * each
        if count < MANY and head == 0 and (n == 0 or rows.sequences[n] != rows.sequences[n - 1]):
            since = max(rows.reach[n] - past.windows[layer], 0)
            fetch(past.kv, past.starts[rows.sequences[n]], kept, layer, since, rows.reach[n], p, NOUGHT)
        some, which = (n, min(n + beside, count)), (head, head + each)
        attend(kept, H, layer, view, work.qkv, size, some, which, p, work.mixed)
        piece = finish(turns, phase)
    return meet(turns, phase, pieces)
