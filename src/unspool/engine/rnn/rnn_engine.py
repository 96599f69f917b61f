"""A recurrent model's compiled step: its weights where they lie, and calls that read tokens.

What is said of a text is the same, to the bit, alone and in any batch, token by token and as a prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.engine.compile_cache import Announced, version
from unspool.engine.memory import lent
from unspool.engine.rnn.rnn_parts import LSTM, MEAN, Memory, RNNSaid, RNNShape, RNNWork, State, Texts
from unspool.engine.rnn.rnn_step import compiled, phases
from unspool.engine.simd import WIDTH
from unspool.engine.token_range import in_vocabulary
from unspool.engine.transformer_engine import NONE, NOTHING, WORTH_SHARING, Numbers, Whole, text_groups
from unspool.engine.weight_table import Weights

TOGETHER = 4096
"""Tokens of all texts that one pass reads side by side, about: what it keeps of each is much."""

step = Announced("recurrent steps (once, about 5 seconds)", compiled(version(Path(__file__).parent)))

NO_TEXTS = Texts(NONE, NONE, NONE, NONE)
NO_MEMORY = Memory(NOTHING, NOTHING, NONE, NONE)
NO_WORK = RNNWork(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
SILENT = RNNSaid(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)


@dataclass(frozen=True)
class Remembered:
    """What is remembered of N rows: (layers · directions, N, H) each; c is empty where a cell has none."""

    h: NDArray[np.float32]
    c: NDArray[np.float32]

    @classmethod
    def nothing(cls, shape: RNNShape, rows: int) -> Remembered:
        """Zeros."""
        nets = shape.layers * shape.directions
        cells = nets if shape.cell == LSTM else 0
        return cls(*(np.zeros((n, rows, shape.width), np.float32) for n in (nets, cells)))

    def select(self, rows: Whole) -> Remembered:
        """Reorder, repeat or drop rows."""
        # h[:, rows] would not be contiguous, and a step writes to memory as it lies.
        return Remembered(self.h.take(rows, axis=1), self.c.take(rows, axis=1))

    def join(self, *others: Remembered) -> Remembered:
        """The rows of others, too, behind one's own."""
        both = (self, *others)
        return Remembered(*(np.concatenate([getattr(it, name) for it in both], axis=1) for name in "hc"))


@dataclass(frozen=True)
class SourceMemory:
    """What an encoder says about sources, one after another, and which of them each row looks at."""

    vectors: NDArray[np.float32]
    """(tokens of all sources, E), or (sources, E) where a context is fixed."""
    keys: NDArray[np.float32]
    """(tokens of all sources, A); the vectors themselves where they are their own keys."""
    begins: Whole
    """(N): where the source of each row begins."""
    lengths: Whole
    """(N): how many tokens it has."""
    columns: int
    """Tokens of the longest source."""

    def select(self, rows: Whole) -> SourceMemory:
        """Reorder, repeat or drop rows. Nothing that was said about sources is copied."""
        return replace(self, begins=self.begins[rows], lengths=self.lengths[rows])

    def join(self, other: SourceMemory) -> SourceMemory:
        """The rows of another, too, behind one's own; sources that no row looks at any more are forgotten."""
        mine, theirs = self._compact(), other._compact()
        return SourceMemory(
            np.concatenate((mine.vectors, theirs.vectors)),
            np.concatenate((mine.keys, theirs.keys)),
            np.concatenate((mine.begins, theirs.begins + len(mine.vectors))),
            np.concatenate((mine.lengths, theirs.lengths)),
            max(mine.columns, theirs.columns),
        )

    def _compact(self) -> SourceMemory:
        begins, first, which = np.unique(self.begins, return_index=True, return_inverse=True)
        lengths = self.lengths[first]
        kept = np.concatenate([np.arange(b, b + n) for b, n in zip(begins, lengths, strict=True)])
        moved = (np.cumsum(lengths) - lengths)[which]
        return replace(self, vectors=self.vectors[kept], keys=self.keys[kept], begins=moved)


class RNNEngine:
    """Shape and weights of one model."""

    def __init__(self, shape: RNNShape, weights: Weights) -> None:
        self.shape, self.weights = shape, weights

    def read(self, texts: Sequence[Sequence[int]]) -> Remembered:
        """What is remembered at the end of each text."""
        parts = []
        for order, group in self._groups(texts):
            state = Remembered.nothing(self.shape, len(order))
            self._pass(group, state, NO_MEMORY, SILENT)
            parts.append(state.select(np.argsort(order)))
        return parts[0].join(*parts[1:]) if len(parts) > 1 else parts[0]

    def encode(self, texts: Sequence[Sequence[int]], begin: int) -> tuple[SourceMemory, Numbers]:
        """What there is to look at in every source, and with what (N, begin) a decoder begins."""
        E, A, fixed = self.shape.memory_width, self.shape.key_width, self.shape.context <= MEAN
        vectors, keys, begun = [], [], []
        for order, group in self._groups(texts):
            M, B = len(group.tokens), len(order)
            memory = Memory(np.empty(M * E, np.float32), np.empty(M * A, np.float32), NONE, NONE)
            said = SILENT._replace(begin=np.empty(B * begin, np.float32))
            summary = self._pass(group, Remembered.nothing(self.shape, B), memory, said)
            back = np.argsort(order)
            vectors.append(summary.reshape(-1, E)[:B][back] if fixed else memory.vectors.reshape(M, E))
            keys.append(memory.keys.reshape(M, A) if A else vectors[-1])
            begun.append(said.begin.reshape(B, begin)[back])
        lengths = np.array([1 if fixed else len(text) for text in texts])
        longest = max(len(text) for text in texts)
        begins = np.cumsum(lengths) - lengths
        kept = SourceMemory(np.concatenate(vectors), np.concatenate(keys), begins, lengths, longest)
        return kept, np.concatenate(begun)

    def step(
        self, tokens: Whole, state: Remembered, sources: SourceMemory | None, *, say: bool
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """hidden (N, D), log p (N, V), log_norm (N) and α (N, S), after one more token of every row.

        The state is written to. What is not said has no rows, or no columns.
        """
        s, N = self.shape, len(tokens)
        tokens = in_vocabulary(tokens, s.vocab_size)
        looks = sources is not None and s.context > MEAN
        columns = -(-sources.columns // WIDTH) * WIDTH if sources is not None and looks else 0
        memory = NO_MEMORY
        if sources is not None:
            vectors, keys = sources.vectors.reshape(-1), sources.keys.reshape(-1)
            memory = Memory(vectors, keys, sources.begins, sources.lengths)
        widest, gates = max(s.embed_width, s.width) + s.memory_width, (4 if s.cell == LSTM else 3) * s.width
        sizes = (widest, s.width, gates, gates, s.width, s.memory_width)
        loud = N if say else 0
        hidden, logp = np.empty((N, s.embed_width), np.float32), lent(loud, s.vocab_size)
        log_norm, looked = np.empty(loud, np.float32), np.empty((N, columns), np.float32)
        said = RNNSaid(hidden.reshape(-1), logp.reshape(-1), log_norm, looked.reshape(-1), NOTHING)
        self._run(NO_TEXTS, tokens, state, memory, RNNWork(*_room(N, sizes)), said, N)
        return hidden, logp, log_norm, looked

    def say(self, hidden: Numbers) -> tuple[Numbers, Numbers]:
        """log p (N, V) and log_norm (N) of vectors (N, D) that the head reads."""
        N = len(hidden)
        logp, log_norm = lent(N, self.shape.vocab_size), np.empty(N, np.float32)
        said = SILENT._replace(hidden=hidden.reshape(-1), logp=logp.reshape(-1), log_norm=log_norm)
        self._run(NO_TEXTS, NONE, Remembered.nothing(self.shape, 0), NO_MEMORY, NO_WORK, said, N)
        return logp, log_norm

    def _groups(self, texts: Sequence[Sequence[int]]) -> Iterator[tuple[Whole, Texts]]:
        for order, group in groups(texts):
            yield order, group._replace(tokens=in_vocabulary(group.tokens, self.shape.vocab_size))

    def _pass(self, group: Texts, state: Remembered, memory: Memory, said: RNNSaid) -> Numbers:
        """One pass over texts; returns their summaries, if the call was to make them."""
        s, M, B = self.shape, len(group.tokens), len(group.starts)
        widest, gates = max(s.embed_width, s.directions * s.width), (4 if s.cell == LSTM else 3) * s.width
        over_tokens, over_texts = _room(M, (widest, widest, gates)), _room(B, (gates, 0, s.memory_width))
        work = RNNWork(*over_tokens, *over_texts)
        self._run(group, NONE, state, memory, work, said, B)
        summaries: Numbers = work.context
        return summaries

    def _run(
        self,
        texts: Texts,
        tokens: Whole,
        state: Remembered,
        memory: Memory,
        work: RNNWork,
        said: RNNSaid,
        rows: int,
    ) -> None:
        small = self.weights.size * rows < WORTH_SHARING
        threads = 1 if small else torch.get_num_threads()
        turns = np.zeros(2 * phases(self.shape, len(texts.active)), np.int64)
        flat = State(state.h.reshape(-1), state.c.reshape(-1))
        order, table = np.arange(len(tokens)), self.weights.table
        args = (self.shape, table, texts, tokens, order, flat, memory, work, said, turns, threads)
        step.shared(threads, *args)


def _room(rows: int, sizes: Sequence[int]) -> list[Numbers]:
    return [np.empty(rows * size, np.float32) for size in sizes]


def groups(texts: Sequence[Sequence[int]]) -> Iterator[tuple[Whole, Texts]]:
    """Texts that one pass reads side by side, the longer ones first: which order that is, and the texts."""
    for first, stop in text_groups([len(text) for text in texts], TOGETHER):
        yield _side_by_side(texts[first:stop])


def _side_by_side(texts: Sequence[Sequence[int]]) -> tuple[Whole, Texts]:
    lengths = np.array([len(text) for text in texts])
    order = np.argsort(-lengths, kind="stable")
    starts = np.cumsum(lengths) - lengths
    tokens = np.concatenate([np.array(text, np.int64) for text in texts])
    active = (lengths[:, None] > np.arange(lengths.max())).sum(0)
    return order, Texts(tokens, starts[order], lengths[order], active)
