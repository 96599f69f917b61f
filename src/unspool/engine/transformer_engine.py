"""A Transformer's compiled step, called from Python: reads tokens into a KV cache.

Rows never share sums, so the results for a text are bit-identical alone and in any batch, token by token and
as a prompt. One call reads at most MAX_ROWS_PER_CALL rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock, local

import numpy as np
import torch
from torch import Tensor

from unspool.engine.attention_tiles import BLOCK
from unspool.engine.kv_cache import PagedKVCache
from unspool.engine.memory import empty_aligned, empty_pooled
from unspool.engine.step_memory import (
    NO_FLOATS,
    NO_INTS,
    CacheAndPositions,
    Floats,
    Ints,
    PositionArrays,
    SourceKV,
    StepOutputs,
    StepTokens,
    Workspace,
)
from unspool.engine.transformer_step import count_phases, step
from unspool.engine.weight_table import OUTPUTS, UP, ModelShape, WeightTable
from unspool.nn.positions import Learned, RelativePositions, Rotary, Sinusoidal

NO_ROTATION = -1
NO_WINDOW = 2**62


class PositionTables:
    """The position tables of a model, longer than needed so that they are rarely rebuilt."""

    def __init__(
        self,
        rotaries: Sequence[Rotary | None],
        added: Sinusoidal | Learned | None,
        windows: Sequence[int | None] = (),
        relative: RelativePositions | None = None,
    ) -> None:
        self._rotaries, self._added, self._relative = rotaries, added, relative
        self._length, self._lock = 0, Lock()
        limits = np.full(len(rotaries), NO_WINDOW)
        for layer, window in enumerate(windows):
            limits[layer] = NO_WINDOW if window is None else window
        self._arrays = PositionArrays(begins=np.full(len(rotaries), NO_ROTATION), windows=limits)

    def up_to(self, length: int) -> PositionArrays:
        """The tables of every position below `length`, at least."""
        with self._lock:  # several threads may decode
            if length > self._length:
                self._arrays, self._length = self._extended(length)
            return self._arrays

    def _extended(self, length: int) -> tuple[PositionArrays, int]:
        if isinstance(self._added, Learned):
            self._added.check(length - 1)
            added = _flat_table(self._added.weight)
            return self._arrays._replace(added=added), self._added.num_embeddings
        length = max(64, 2 * length)
        places = torch.arange(length)[None]
        arrays = self._turned(places, length)
        if self._relative is not None:
            arrays = arrays._replace(buckets=self._relative.bucket(torch.arange(1 - length, length)).numpy())
        if isinstance(self._added, Sinusoidal):
            arrays = arrays._replace(added=_flat_table(self._added(places)))
        return arrays, length

    def _turned(self, places: Tensor, length: int) -> PositionArrays:
        different = [it for it in dict.fromkeys(self._rotaries) if it is not None]
        if not different:
            return self._arrays
        made = [it.tables(places, length) for it in different]
        half = made[0][0].shape[-1] // 2
        return self._arrays._replace(
            cos=_flat_table(torch.stack([cos[..., :half] for cos, _ in made])),
            sin=_flat_table(torch.stack([sin[..., half:] for _, sin in made])),
            begins=np.array(
                [NO_ROTATION if it is None else different.index(it) * length for it in self._rotaries]
            ),
        )


def _flat_table(table: Tensor) -> Floats:
    numbers: Floats = table.detach().contiguous().view(-1).numpy()
    return numbers


MAX_ROWS_PER_CALL = 256
"""Rows of one call, at most."""
WORTH_SHARING = 1_000_000
"""Fewer multiplications are faster in one thread."""

NO_BLOCKS = NO_INTS.reshape(0, 0)
NO_SOURCE = SourceKV(NO_FLOATS, NO_BLOCKS, NO_INTS)


class TransformerEngine:
    """The shape, weights and position tables of one model, and calls of its compiled step."""

    def __init__(self, shape: ModelShape, weights: WeightTable, tables: PositionTables) -> None:
        self.shape, self.weights, self.tables = shape, weights, tables
        self._local = local()  # each thread has its own workspace
        self._prepared_words = weights.prepared_words()

    def read(
        self,
        cache: PagedKVCache,
        tokens: Ints,
        counts: Ints | None,
        depths: Sequence[int] = (),
        *,
        with_logp: bool = False,
        sources: PagedKVCache | None = None,
        source_columns: int = 0,
    ) -> StepOutputs:
        """Append the next counts[n] tokens (one if None) to each row n; the outputs for each token.

        Row n of a decoder attends to row n of `sources`; `source_columns` columns of that attention are
        returned.
        """
        cache.reserve(counts)
        sequences, positions, ends = _token_positions(cache, counts)
        context = self.context(cache, int(ends.max()))
        cache.lengths = ends
        M, D, V = len(tokens), self.shape.width, self.shape.vocab_size
        logp_rows = M if with_logp else 0
        result = StepOutputs(
            empty_aligned(M, D),
            np.empty((M, len(depths), D), np.float32),
            empty_pooled(logp_rows, V),
            np.empty(logp_rows, np.float32),
            np.empty((M, -(-source_columns // BLOCK) * BLOCK), np.float32),
            np.array(depths, np.int64),
        )
        source = NO_SOURCE if sources is None else SourceKV(sources.kv, sources.starts, sources.lengths)
        for first in range(0, M, MAX_ROWS_PER_CALL):
            cut = slice(first, min(first + MAX_ROWS_PER_CALL, M))
            n = cut.stop - first
            outputs = StepOutputs._make([*(it[cut].reshape(-1) for it in result[:-1]), result.depths])
            wanted = np.arange(n) if with_logp else NO_INTS
            rows = StepTokens(tokens[cut], sequences[cut], positions[cut], positions[cut] + 1, wanted)
            work = self.workspace(n, result.source_attention.shape[1])
            self.run(rows, context, source, work, outputs)
        return result

    def head_logp(self, hidden: Floats) -> tuple[Floats, Floats]:
        """log p (M, V) and log_norm (M) of inputs (M, D) of the head."""
        logp = empty_pooled(len(hidden), self.shape.vocab_size)
        log_norm = np.empty(len(hidden), np.float32)
        context = CacheAndPositions(NO_FLOATS, NO_BLOCKS, PositionArrays())
        for first in range(0, len(hidden), MAX_ROWS_PER_CALL):
            cut = slice(first, min(first + MAX_ROWS_PER_CALL, len(hidden)))
            rows = np.arange(cut.stop - first)
            inputs, out = hidden[cut].flatten(), logp[cut].reshape(-1)
            outputs = StepOutputs(inputs, NO_FLOATS, out, log_norm[cut], NO_FLOATS, NO_INTS)
            tokens = StepTokens(NO_INTS, NO_INTS, rows, NO_INTS, rows)
            self.run(tokens, context, NO_SOURCE, self.workspace(len(rows)), outputs)
        return logp, log_norm

    def check_tokens(self, tokens: Ints) -> Ints:
        """The tokens as a contiguous int64 array; raises if one is outside the vocabulary."""
        size = self.shape.vocab_size
        if tokens.min(initial=0) < 0 or tokens.max(initial=0) >= size:
            raise IndexError(
                f"token ids are {tokens.min()} to {tokens.max()}, but the model has 0 to {size - 1}"
            )
        return np.ascontiguousarray(tokens, np.int64)  # one layout: numba compiles for each layout

    def context(self, cache: PagedKVCache, length: int) -> CacheAndPositions:
        """The KV cache and position tables for a step up to this length."""
        return CacheAndPositions(cache.kv, cache.starts, self.tables.up_to(length))

    def run(
        self, rows: StepTokens, context: CacheAndPositions, source: SourceKV, work: Workspace,
        outputs: StepOutputs,
    ) -> None:  # fmt: skip
        """Call the compiled step, in several threads if that is faster."""
        is_small = self.weights.size * len(rows.positions) < WORTH_SHARING
        threads = 1 if is_small else torch.get_num_threads()
        layers, table = self.shape.layers, self.weights.table
        queue = np.zeros(2 * count_phases(layers, len(table) - layers - 1), np.int64)
        step.run(threads, (self.shape, table, rows, context, source, work, outputs, queue))

    def workspace(self, n: int, source_columns: int = 0) -> Workspace:
        """The workspace for n rows, usually that of the step before."""
        known: tuple[tuple[int, int], Workspace] | None = getattr(self._local, "workspace", None)
        if known is not None and known[0] == (n, source_columns):
            return known[1]
        s = self.shape
        qkv = (s.heads + 2 * s.kv_heads) * max(s.head_width, s.key_width)
        up = int(self.weights.table[0, UP, OUTPUTS])
        mixed = s.heads * s.head_width
        sizes = (*[s.width] * 3, qkv, mixed, up, s.inner_width, source_columns, self._prepared_words)
        work = Workspace(*(empty_aligned(n * size) for size in sizes))
        self._local.workspace = (n, source_columns), work
        return work


def _token_positions(cache: PagedKVCache, counts: Ints | None) -> tuple[Ints, Ints, Ints]:
    """The row of each token, its position in the row, and the new length of every row."""
    rows = np.arange(cache.rows)
    if counts is None:
        return rows, cache.lengths, cache.lengths + 1
    ends = cache.lengths + counts
    positions = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - ends, counts)
    return np.repeat(rows, counts), positions, ends


def group_sources(lengths: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of texts, in order, with at most `most` tokens together, and at least one text each."""
    first, tokens = 0, 0
    for n, length in enumerate(lengths):
        if tokens and tokens + length > most:
            yield first, n
            first, tokens = n, 0
        tokens += length
    yield first, len(lengths)


class EncoderEngine:
    """A compiled encoder: computes the keys and values of sources for a decoder.

    Every token attends to all tokens of its source, so a source is read in one call; several short sources
    share a call.
    """

    def __init__(self, engine: TransformerEngine) -> None:
        self.engine, self.weights = engine, engine.weights

    def read(self, sources: Sequence[Sequence[int]], decoder: ModelShape) -> PagedKVCache:
        """The keys and values of every decoder layer, one row for each source."""
        lengths = np.array([len(source) for source in sources])
        shape = decoder._replace(
            keyless=False, half_cache=False
        )  # cross-attention: float32, always with keys
        source_cache = PagedKVCache.empty(shape, len(sources))
        source_cache.reserve(lengths)
        source_cache.lengths = lengths
        flat = np.concatenate([np.array(source, np.int64) for source in sources])
        tokens = self.engine.check_tokens(flat)
        ends = np.cumsum(lengths)
        for first, stop in group_sources(lengths.tolist(), MAX_ROWS_PER_CALL):
            cut = slice(ends[first] - lengths[first], ends[stop - 1])
            self._read_group(tokens[cut], lengths[first:stop], source_cache, slice(first, stop))
        return source_cache

    def _read_group(self, tokens: Ints, lengths: Ints, source_cache: PagedKVCache, which: slice) -> None:
        engine, M = self.engine, len(tokens)
        cache = PagedKVCache.empty(engine.shape, len(lengths))
        cache.reserve(lengths)
        positions = np.arange(M) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        sequences = np.repeat(np.arange(len(lengths)), lengths)
        rows = StepTokens(tokens, sequences, positions, np.repeat(lengths, lengths), NO_INTS)
        source = SourceKV(source_cache.kv, source_cache.starts[which], lengths)
        hidden = np.empty(M * engine.shape.width, np.float32)
        outputs = StepOutputs(hidden, NO_FLOATS, NO_FLOATS, NO_FLOATS, NO_FLOATS, NO_INTS)
        engine.run(rows, engine.context(cache, int(lengths.max())), source, engine.workspace(M), outputs)
