"""A model's compiled step: its weights where they lie, and calls that read tokens.

Rows that are read side by side, in slices of SLICE, never touch each other's sums: what is said of a text
is the same, to the bit, alone and in any batch, token by token and as a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.engine.attention import BLOCK
from unspool.engine.compile_cache import Open, version
from unspool.engine.kv_cache import BlockPool
from unspool.engine.memory import aligned, lent
from unspool.engine.step_memory import Past, Rows, Said, Source, Work
from unspool.engine.token_range import in_vocabulary
from unspool.engine.transformer_step import compiled_step, phases
from unspool.engine.weight_table import OUTPUTS, UP, Shape, Weights
from unspool.nn.positions import Learned, RelativePositions, Rotary, Sinusoidal

Numbers = NDArray[np.float32]
NOTHING = np.empty(0, np.float32)
UNTURNED = -1
ENDLESS = 2**62


class Tables:
    """cos, sin (tables · positions · I/2) and added vectors (positions · D), empty where a model has none.

    Layers have tables of their own (`begins`: at which place), or none, and see a window each (`windows`).
    `buckets` are those of relative positions, by distance.

    What a step must know of positions: cos and sin, vectors that are added, windows, buckets of distances.

    Tables of the modules in `nn.positions`, longer than needed so that few are made; learnt positions are the
    parameter's own memory.
    """

    def __init__(
        self,
        rotaries: Sequence[Rotary | None],
        added: Sinusoidal | Learned | None,
        windows: Sequence[int | None] = (),
        relative: RelativePositions | None = None,
    ) -> None:
        self._rotaries, self._added, self._relative = rotaries, added, relative
        self._reach = 0
        self.buckets = np.empty(0, np.int64)
        self.cos, self.sin, self.added = NOTHING, NOTHING, NOTHING
        self.begins = np.full(len(rotaries), UNTURNED)
        self.windows = np.full(len(rotaries), ENDLESS)
        for layer, window in enumerate(windows):
            self.windows[layer] = ENDLESS if window is None else window

    def reach(self, length: int) -> None:
        """Let the tables hold every position below `length`."""
        if length <= self._reach:
            return
        self._reach = max(64, 2 * length)
        if isinstance(self._added, Learned):
            self._added.at(length - 1, self._added.weight.device)  # refuses what was not learnt
            self.added, self._reach = _flat_table(self._added.weight), self._added.num_embeddings
            return
        places = torch.arange(self._reach)[None]
        self._turn(places)
        if self._relative is not None:
            self.buckets = self._relative.bucket(torch.arange(1 - self._reach, self._reach)).numpy()
        if isinstance(self._added, Sinusoidal):
            self.added = _flat_table(self._added(places))

    def _turn(self, places: Tensor) -> None:
        different = [it for it in dict.fromkeys(self._rotaries) if it is not None]
        if not different:
            return
        made = [it.tables(places, self._reach) for it in different]
        half = made[0][0].shape[-1] // 2
        self.cos = _flat_table(torch.stack([cos[..., :half] for cos, _ in made]))
        self.sin = _flat_table(torch.stack([sin[..., half:] for _, sin in made]))
        for layer, rotary in enumerate(self._rotaries):
            self.begins[layer] = UNTURNED if rotary is None else different.index(rotary) * self._reach


def _flat_table(table: Tensor) -> Numbers:
    numbers: Numbers = table.detach().contiguous().view(-1).numpy()
    return numbers


SLICE = 256
"""Rows that one call works on, at most."""
WORTH_SHARING = 1_000_000
"""Multiplications below which waking other threads takes longer than they would save."""

Whole = NDArray[np.int64]
NONE: Whole = np.empty(0, np.int64)
NO_BLOCKS = NONE.reshape(0, 0)
NO_SOURCE = Source(NOTHING, NO_BLOCKS, NONE)

step = Open("the decoding step (once, about 10 seconds)", compiled_step(version(Path(__file__).parent)))


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


# Which texts one call reads side by side.


def text_groups(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Texts in their order, as many at a time as have `most` tokens, and one at least: first, stop."""
    first, tokens = 0, 0
    for n, length in enumerate(lengths):
        if tokens and tokens + length > most:
            yield first, n
            first, tokens = n, 0
        tokens += length
    yield first, len(lengths)


class Encoder:
    """The engine of an encoder, whose tokens look at each other in both directions.

    A compiled encoder: sources to the keys and values that a decoder looks at, made once for each source.

    Every token looks at all tokens of its own source, so that these are read side by side; several short
    sources are, too, and never touch each other's sums.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def read(self, sources: Sequence[Sequence[int]], decoder: Shape) -> BlockPool:
        """Keys and values of every layer of the decoder, one row for each source."""
        lengths = np.array([len(source) for source in sources])
        kept = BlockPool.empty(decoder._replace(keyless=False), len(sources))  # sources always have keys
        kept.make_room(lengths)
        kept.lengths = lengths
        self.engine.tables.reach(int(lengths.max()))
        flat = np.concatenate([np.array(source, np.int64) for source in sources])
        tokens = in_vocabulary(flat, self.engine.shape.vocab_size)
        ends = np.cumsum(lengths)
        for first, stop in text_groups(lengths.tolist(), SLICE):
            cut = slice(ends[first] - lengths[first], ends[stop - 1])
            self._read_group(tokens[cut], lengths[first:stop], kept, slice(first, stop))
        return kept

    def _read_group(self, tokens: Whole, lengths: Whole, kept: BlockPool, which: slice) -> None:
        engine, M = self.engine, len(tokens)
        pool = BlockPool.empty(engine.shape, len(lengths))
        pool.make_room(lengths)
        places = np.arange(M) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        sequences = np.repeat(np.arange(len(lengths)), lengths)
        rows = Rows(tokens, sequences, places, np.repeat(lengths, lengths), NONE)
        source = Source(kept.kv, kept.starts[which], lengths)
        hidden = np.empty(M * engine.shape.width, np.float32)
        said = Said(hidden, NONE, NOTHING, NOTHING, NOTHING, NOTHING)
        engine.run(rows, engine.past(pool), source, engine.work(M), said)
