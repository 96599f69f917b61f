"""A compiled encoder: sources to the keys and values that a decoder looks at, made once for each source.

Every token looks at all tokens of its own source, so that these are read side by side; several short sources
are, too, and never touch each other's sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unspool.nn.compiled.parts import Shape
from unspool.nn.compiled.pool import BlockPool
from unspool.nn.compiled.step_memory import Rows, Said, Source
from unspool.nn.compiled.tables import NOTHING
from unspool.nn.compiled.text_groups import text_groups
from unspool.nn.compiled.token_range import in_vocabulary
from unspool.nn.compiled.transformer_engine import NONE, SLICE, Engine, Whole


class Encoder:
    """The engine of an encoder, whose tokens look at each other in both directions."""

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
