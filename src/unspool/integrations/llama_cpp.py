"""A GGUF file run by llama.cpp, as a StepModel: quantised weights, batches of rows, beams that copy no cache.

    model = us.load("file.gguf", engine="llama.cpp")

A state has a context of llama.cpp to itself; one that is no longer used serves the next. Where a cache is
full, a larger one is made and the rows are read anew.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from unspool.heads.softmax import log_softmax
from unspool.integrations.loading import LLAMA_CPP
from unspool.interfaces import Abilities, Step, TokenizerLike
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.output_matrix import output_matrix_of_gguf
from unspool.models.loading.tokenizer import load_gguf_tokenizer

# One context of llama.cpp: a cache that many sequences share, and decoding of batches over it.
#
# Its cache has room for a number of cells, one for each token of each sequence, shared ones counted once.


MAX_SEQUENCES = 256
"""Rows that llama.cpp holds at most."""
MAX_BATCH_TOKENS = 512
"""Tokens of one call."""

BatchToken = tuple[int, int, int, bool]
"""A token, its place in the row, the row's sequence, and whether what follows it is asked for."""


class FullCacheError(RuntimeError):
    """There is no room for the tokens of a batch."""


class LlamaContext:
    """A cache of `cells` cells for one model, freed with this object."""

    def __init__(self, library: Any, model: Any, cells: int, threads: int, vocab_size: int) -> None:
        self.library, self.cells, self.vocab_size = library, cells, vocab_size
        asked = library.llama_context_default_params()
        asked.n_ctx, asked.n_batch, asked.n_ubatch = cells, MAX_BATCH_TOKENS, MAX_BATCH_TOKENS
        asked.n_seq_max = MAX_SEQUENCES
        asked.kv_unified = True
        asked.n_threads = asked.n_threads_batch = threads
        asked.no_perf = True
        self._context = library.llama_init_from_model(model, asked)
        if not self._context:
            raise MemoryError(
                f"llama.cpp has no memory for {cells} tokens: lower batch_size, or take a smaller model"
            )
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(MAX_BATCH_TOKENS, 0, 1)

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

    def decode(self, tokens: Sequence[BatchToken]) -> Tensor:
        """(M, V): the logits after those tokens that ask for them, in their order."""
        found = [
            self._decode(tokens[first : first + MAX_BATCH_TOKENS])
            for first in range(0, len(tokens), MAX_BATCH_TOKENS)
        ]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _decode(self, tokens: Sequence[BatchToken]) -> Tensor:
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


@dataclass(frozen=True)
class SequencePlan:
    """What the cache must be told before rows stand as they were asked to.

    Which of llama.cpp's sequences holds each row.

    A sequence is a number under which cells of the cache are found; one cell may be found under many. Rows
    that are reordered keep their numbers, a row that is repeated gets a free number with the same cells, and
    a row that is dropped gives its number back: nothing of the cache is ever copied.
    """

    rows: tuple[int, ...]
    """The sequence of every row afterwards."""
    copies: tuple[tuple[int, int], ...]
    """From a sequence to a free one."""
    dropped: tuple[int, ...]
    """Sequences that no row needs any more."""


def plan_sequences(sequences: Sequence[int], rows: Sequence[int], most: int) -> SequencePlan:
    """How rows that stand in these sequences become those asked for; `most`: how many sequences there are."""
    kept = {sequences[row] for row in rows}
    free = iter([it for it in range(most) if it not in kept])
    used: set[int] = set()
    found, copies = [], []
    for row in rows:
        place = sequences[row]
        if place in used:
            fresh = next(free, None)
            if fresh is None:
                raise ValueError(
                    f"llama.cpp holds {most} rows at most: lower batch_size, n or the width of a beam"
                )
            copies.append((place, fresh))
            place = fresh
        used.add(place)
        found.append(place)
    return SequencePlan(tuple(found), tuple(copies), tuple(it for it in sequences if it not in kept))


ENGINE = "llama.cpp"
SPARE_CELLS_PER_ROW = 256
"""Cells kept free for the new tokens of each row when prompts are read."""
ALL_LAYERS = 999


@dataclass
class LlamaState:
    """Rows in the sequences of a context, and their tokens."""

    model: LlamaCppModel
    context: LlamaContext
    sequences: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def select(self, rows_M: Tensor) -> LlamaState:
        """Reorder, repeat or drop rows: numbers of sequences change, and no cell is copied."""
        rows = rows_M.tolist()
        plan = plan_sequences(self.sequences, rows, MAX_SEQUENCES)
        for sequence in plan.dropped:
            self.context.drop(sequence)
        for source, target in plan.copies:
            self.context.copy(source, target)
        self.sequences, self.rows = plan.rows, tuple(self.rows[row] for row in rows)
        return self

    def read(self, tokens: Sequence[Sequence[int]], every: bool) -> Tensor:
        """Append tokens to the rows: the logits after every one of them, or after the last of each row."""
        grown = tuple((*row, *new) for row, new in zip(self.rows, tokens, strict=True))
        try:
            logits = self.context.decode(_batch(self.sequences, tokens, self.rows, every))
        except FullCacheError:
            self._move(2 * sum(map(len, grown)) + SPARE_CELLS_PER_ROW * len(grown))
            logits = self.context.decode(_batch(self.sequences, tokens, self.rows, every))
        self.rows = grown
        return logits

    def _move(self, cells: int) -> None:
        """Read what there is anew, into a larger cache."""
        self.context = self.model.new_context(max(cells, 2 * self.context.cells))
        self.sequences = tuple(range(len(self.rows)))
        if any(self.rows):
            self.context.decode(_batch(self.sequences, self.rows, [()] * len(self.rows), False))


def _batch(
    sequences: Sequence[int], tokens: Sequence[Sequence[int]], before: Sequence[Sequence[int]], every: bool
) -> list[BatchToken]:
    return [
        (token, len(past) + place, sequence, every or place == len(new) - 1)
        for sequence, new, past in zip(sequences, tokens, before, strict=True)
        for place, token in enumerate(new)
    ]


class LlamaCppModel(Abilities):
    """Continues prompts with llama.cpp."""

    def __init__(self, path: str | Path, layers_on_gpu: int = 0) -> None:
        self._library = LLAMA_CPP.imported("engine='llama.cpp'")
        _silence_log(self._library)
        self._file = open_gguf(Path(path))
        self.tokenizer: TokenizerLike | None = load_gguf_tokenizer(self._file)
        asked = self._library.llama_model_default_params()
        asked.n_gpu_layers = layers_on_gpu
        self._model = self._library.llama_model_load_from_file(str(path).encode(), asked)
        if not self._model:
            raise ValueError(f"{path}: llama.cpp cannot load this file; is it newer than the library?")
        weakref.finalize(self, self._library.llama_model_free, self._model)
        self._idle: list[LlamaContext] = []
        vocabulary = self._library.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._library.llama_vocab_n_tokens(vocabulary)
        if self.tokenizer is not None and self.tokenizer.vocab_size > self.vocab_size:
            raise ValueError(
                f"{path}: the tokenizer knows {self.tokenizer.vocab_size} tokens, the model only "
                f"{self.vocab_size}: the file is damaged"
            )

    @property
    def engine(self) -> str:
        """Who runs the steps."""
        return ENGINE

    @property
    def context(self) -> int:
        """What it was trained for."""
        found: int = self._library.llama_model_n_ctx_train(self._model)
        return found

    @property
    def rewindable(self) -> Self:
        """It can forget what it has read."""
        return self

    @cached_property
    def output_matrix(self) -> Tensor | None:
        """(V, D), unpacked from the file when it is first asked for; None where the logits are bent."""
        return output_matrix_of_gguf(self._file)

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LlamaState]:
        """Read the prompts side by side."""
        if len(prompts) > MAX_SEQUENCES:
            raise ValueError(f"llama.cpp holds {MAX_SEQUENCES} rows at most: say batch_size={MAX_SEQUENCES}")
        needed = sum(map(len, prompts)) + SPARE_CELLS_PER_ROW * len(prompts)
        state = LlamaState(self, self.new_context(needed), tuple(range(len(prompts))), ((),) * len(prompts))
        weakref.finalize(state, self._take_back, state.context)
        return _step_from_logits(state.read(prompts, every=False)), state

    def step(self, state: LlamaState, tokens_N: Tensor) -> tuple[Step, LlamaState]:
        """Append one token to every row."""
        return _step_from_logits(state.read([(token,) for token in tokens_N.tolist()], every=False)), state

    def extend(self, state: LlamaState, tokens_NT: Tensor) -> tuple[Step, LlamaState]:
        """Append T tokens to every row; the Step has T rows for each of them."""
        return _step_from_logits(state.read(tokens_NT.tolist(), every=True)), state

    def rewind(self, state: LlamaState, tokens: int) -> LlamaState:
        """Forget the last `tokens` tokens of every row."""
        if tokens:
            state.rows = tuple(row[:-tokens] for row in state.rows)
            for sequence, row in zip(state.sequences, state.rows, strict=True):
                state.context.drop(sequence, len(row))
        return state

    def new_context(self, cells: int) -> LlamaContext:
        """An empty cache of at least so many cells: one that is no longer used, or a new one."""
        for place, idle in enumerate(self._idle):
            if idle.cells >= cells:
                del self._idle[place]
                idle.clear()
                return idle
        self._idle.clear()
        rounded = 256 * -(-cells // 256)
        return LlamaContext(self._library, self._model, rounded, torch.get_num_threads(), self.vocab_size)

    def _take_back(self, context: LlamaContext) -> None:
        self._idle.append(context)


def load_llama(path: Path, device: str) -> LlamaCppModel:
    """The model of a GGUF file, on the CPU or, where llama.cpp was built for one, on a GPU."""
    if device == "cpu":
        return LlamaCppModel(path)
    if not LLAMA_CPP.imported("engine='llama.cpp'").llama_supports_gpu_offload():
        raise ValueError(
            f"device {device!r} was asked for, and the llama-cpp-python that is installed was built for CPUs "
            "alone: leave device out, or build it with support for a GPU"
        )
    return LlamaCppModel(path, ALL_LAYERS)


def _step_from_logits(logits_NV: Tensor) -> Step:
    return Step(log_softmax(logits_NV), log_norm_N=logits_NV.logsumexp(-1))


def _silence_log(library: Any) -> None:
    """llama.cpp tells its whole story on standard error unless somebody else listens."""
    global _LOG_CALLBACK
    if _LOG_CALLBACK is None:
        _LOG_CALLBACK = library.llama_log_callback(lambda _level, _text, _data: None)
        library.llama_log_set(_LOG_CALLBACK, None)


_LOG_CALLBACK: Any = None


# llama.cpp, through llama-cpp-python: GGUF files of any family that it knows, as models of ours.
