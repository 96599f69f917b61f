"""One context of llama.cpp: a cache that many sequences share, and decoding of batches over it.

Its cache has room for a number of cells, one for each token of each sequence, shared ones counted once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

SEQUENCES = 256
"""Rows that llama.cpp holds at most."""
BATCH = 512
"""Tokens of one call."""

Token = tuple[int, int, int, bool]
"""A token, its place in the row, the row's sequence, and whether what follows it is asked for."""


class FullCacheError(RuntimeError):
    """There is no room for the tokens of a batch."""


class LlamaContext:
    """A cache of `cells` cells for one model, freed with this object."""

    def __init__(self, library: Any, model: Any, cells: int, threads: int, vocab_size: int) -> None:
        self.library, self.cells, self.vocab_size = library, cells, vocab_size
        asked = library.llama_context_default_params()
        asked.n_ctx, asked.n_batch, asked.n_ubatch = cells, BATCH, BATCH
        asked.n_seq_max = SEQUENCES
        asked.kv_unified = True
        asked.n_threads = asked.n_threads_batch = threads
        asked.no_perf = True
        self._context = library.llama_init_from_model(model, asked)
        if not self._context:
            raise MemoryError(
                f"llama.cpp has no memory for {cells} tokens: lower batch_size, or take a smaller model"
            )
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(BATCH, 0, 1)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.library.llama_batch_free(self._batch)
            self.library.llama_free(self._context)
            self._context = None

    def clear(self) -> None:
        """Forget everything."""
        self.library.llama_memory_clear(self._memory, False)

    def copy(self, source: int, target: int) -> None:
        """Let a sequence have the cells of another."""
        self.library.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def drop(self, sequence: int, since: int = -1) -> None:
        """Forget a sequence from a place on, or as a whole."""
        self.library.llama_memory_seq_rm(self._memory, sequence, since, -1)

    def decode(self, tokens: Sequence[Token]) -> Tensor:
        """(M, V): the logits after those tokens that ask for them, in their order."""
        found = [self._decode(tokens[first : first + BATCH]) for first in range(0, len(tokens), BATCH)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _decode(self, tokens: Sequence[Token]) -> Tensor:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for place, (token, position, sequence, asked) in enumerate(tokens):
            batch.token[place] = token
            batch.pos[place] = position
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = sequence
            batch.logits[place] = asked
        status = self.library.llama_decode(self._context, batch)
        if status == 1:
            raise FullCacheError
        if status != 0:
            raise RuntimeError(f"llama.cpp cannot decode this batch (status {status})")
        asking = sum(asked for *_, asked in tokens)
        if not asking:
            return torch.empty(0, self.vocab_size)
        pointer = ctypes.cast(self.library.llama_get_logits(self._context), ctypes.POINTER(ctypes.c_float))
        logits = np.ctypeslib.as_array(pointer, (asking, self.vocab_size))
        return torch.from_numpy(logits.copy())  # the next call writes over them
