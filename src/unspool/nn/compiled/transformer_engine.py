"""A model's compiled step: its weights where they lie, and calls that read tokens.

Rows that are read side by side, in slices of SLICE, never touch each other's sums: what is said of a text
is the same, to the bit, alone and in any batch, token by token and as a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.kernels.aligned import aligned
from unspool.kernels.compilation import Open, version
from unspool.kernels.spare_memory import lent
from unspool.nn.compiled.attention import BLOCK
from unspool.nn.compiled.parts import OUTPUTS, UP, Shape
from unspool.nn.compiled.pool import BlockPool
from unspool.nn.compiled.step import compiled, phases
from unspool.nn.compiled.step_memory import Past, Rows, Said, Source, Work
from unspool.nn.compiled.tables import NOTHING, Numbers, Tables
from unspool.nn.compiled.weight_table import Weights

SLICE = 256
"""Rows that one call works on, at most."""
WORTH_SHARING = 1_000_000
"""Multiplications below which waking other threads takes longer than they would save."""

Whole = NDArray[np.int64]
NONE: Whole = np.empty(0, np.int64)
NO_BLOCKS = NONE.reshape(0, 0)
NO_SOURCE = Source(NOTHING, NO_BLOCKS, NONE)

step = Open("the decoding step (once, about 10 seconds)", compiled(version(Path(__file__).parent)))


class Read(NamedTuple):
    """What a model has to say at M tokens."""

    hidden: Numbers
    """(M, D): what the head reads."""
    early: Numbers
    """(depths, M, D): what it would read at the depths that were asked for."""
    logp: Numbers
    """(M, V), where it was to be said."""
    log_norm: Numbers
    """(M): logit = log p + log_norm."""
    looked: Numbers
    """(M, S), or more columns: where the last layer looks in the source, where that was asked for."""


class Engine:
    """Shape, weights and tables of one model."""

    def __init__(self, shape: Shape, weights: Weights, tables: Tables) -> None:
        self.shape, self.weights, self.tables = shape, weights, tables
        self._room: tuple[tuple[int, int], Work] | None = None
        self._ready = weights.ready_words()

    def read(
        self,
        pool: BlockPool,
        tokens: Whole,
        counts: Whole | None,
        depths: Sequence[int] = (),
        *,
        say: bool = False,
        sources: BlockPool | None = None,
        look: int = 0,
    ) -> Read:
        """Append the next counts[n] of the tokens to row n, for every row; what is said at each of them.

        Where there are no counts, each row has one token. A decoder's row n looks at sources' row n; `look`
        is how many columns are to be told of that.
        """
        pool.make_room(counts)
        sequences, places, ends = _spots(pool, counts)
        self.tables.reach(int(ends.max()))
        pool.lengths = ends
        M, D, V = len(tokens), self.shape.width, self.shape.vocab_size
        loud = M if say else 0
        found = Read(
            aligned(M, D),
            np.empty((len(depths), M, D), np.float32),
            lent(loud, V),
            np.empty(loud, np.float32),
            np.empty((M, -(-look // BLOCK) * BLOCK), np.float32),
        )
        source = NO_SOURCE if sources is None else Source(sources.kv, sources.starts, sources.lengths)
        past = self.past(pool)
        asked = np.array(depths, np.int64)
        for first in range(0, M, SLICE):
            cut = slice(first, min(first + SLICE, M))
            n = cut.stop - first
            early = np.empty((len(depths), n, D), np.float32) if depths else NOTHING
            said = Said(
                _flat(found.hidden[cut]),
                asked,
                _flat(early),
                _flat(found.logp[cut]),
                found.log_norm[cut],
                _flat(found.looked[cut]),
            )
            rows = Rows(
                tokens[cut], sequences[cut], places[cut], places[cut] + 1, np.arange(n) if say else NONE
            )
            self.run(rows, past, source, self.work(n, found.looked.shape[1]), said)
            if depths:
                found.early[:, cut] = early
        return found

    def say(self, hidden: Numbers) -> tuple[Numbers, Numbers]:
        """log p (M, V) and log_norm (M) of vectors (M, D) that the head reads."""
        logp = lent(len(hidden), self.shape.vocab_size)
        log_norm = np.empty(len(hidden), np.float32)
        past = Past(NOTHING, NO_BLOCKS, NOTHING, NOTHING, NOTHING, NONE, NONE, NONE)
        for first in range(0, len(hidden), SLICE):
            cut = slice(first, min(first + SLICE, len(hidden)))
            rows = np.arange(cut.stop - first)
            said = Said(hidden[cut].flatten(), NONE, NOTHING, _flat(logp[cut]), log_norm[cut], NOTHING)
            self.run(Rows(NONE, NONE, rows, NONE, rows), past, NO_SOURCE, self.work(len(rows)), said)
        return logp, log_norm

    def past(self, pool: BlockPool) -> Past:
        """What rows look at, and what is known of positions."""
        tables = self.tables
        place = (tables.cos, tables.sin, tables.added, tables.begins, tables.windows, tables.buckets)
        return Past(pool.kv, pool.starts, *place)

    def run(self, rows: Rows, past: Past, source: Source, work: Work, said: Said) -> None:
        """One call of the compiled step, by as many threads as it is worth."""
        small = self.weights.size * len(rows.positions) < WORTH_SHARING
        threads = 1 if small else torch.get_num_threads()
        layers, table = self.shape.layers, self.weights.table
        turns = np.zeros(2 * phases(layers, len(table) - layers - 1), np.int64)
        step.shared(threads, self.shape, table, rows, past, source, work, said, turns)

    def work(self, n: int, looks: int = 0) -> Work:
        """Room for a step of n rows: as a rule that of the step before."""
        if self._room is not None and self._room[0] == (n, looks):
            return self._room[1]
        s = self.shape
        qkv = (s.heads + 2 * s.kv_heads) * max(s.head_width, s.key_width)
        up = int(self.weights.table[0, UP, OUTPUTS])
        mixed = s.heads * s.head_width
        sizes = (s.width, s.width, s.width, qkv, mixed, up, s.inner_width, looks, self._ready)
        room = Work(*(aligned(n * size) for size in sizes))
        self._room = (n, looks), room
        return room


def _spots(pool: BlockPool, counts: Whole | None) -> tuple[Whole, Whole, Whole]:
    """Whose each token is, its place there, and how long every row will be."""
    rows = np.arange(pool.rows)
    if counts is None:
        return rows, pool.lengths, pool.lengths + 1
    ends = pool.lengths + counts
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - ends, counts)
    return np.repeat(rows, counts), places, ends


def _flat(numbers: Numbers) -> Numbers:
    return numbers.reshape(-1)
