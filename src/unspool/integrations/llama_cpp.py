"""Run GGUF files with llama.cpp (llama-cpp-python) as a StepModel: quantised weights, batches and beams.

    model = us.load("file.gguf", engine="llama.cpp")

Each state owns a llama.cpp context, which is reused after the state is deleted. If the KV cache is full, a
larger one is allocated and the sequences are read again.
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

from unspool.engine.processors import cpu_quota
from unspool.heads.softmax import step_from_logits
from unspool.integrations.loading import LLAMA_CPP
from unspool.interfaces import Abilities, Step, TokenizerLike
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.model_names import load_gguf_tokenizer
from unspool.models.loading.output_matrix import output_matrix_of_gguf

MAX_SEQUENCES = 256
"""Sequences per context."""
MAX_BATCH_TOKENS = 512
"""Tokens per llama_decode call."""

BatchToken = tuple[int, int, int, bool]
"""Token id, position, sequence id, and whether its logits are needed."""


class FullCacheError(RuntimeError):
    """The KV cache has too few free cells for a batch."""


class LlamaContext:
    """A llama.cpp context; its KV cache has `cells` cells, one per token, shared between sequences."""

    def __init__(self, library: Any, model: Any, cells: int, threads: int, vocab_size: int) -> None:
        self.library, self.cells, self.vocab_size = library, cells, vocab_size
        params = library.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = cells, MAX_BATCH_TOKENS, MAX_BATCH_TOKENS
        params.n_seq_max = MAX_SEQUENCES
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        self._context = library.llama_init_from_model(model, params)
        if not self._context:
            raise MemoryError(
                f"llama.cpp: out of memory for a context of {cells} tokens: reduce batch_size, or use a "
                "smaller model"
            )
        self._memory = library.llama_get_memory(self._context)
        self._batch = library.llama_batch_init(MAX_BATCH_TOKENS, 0, 1)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self.library.llama_batch_free(self._batch)
            self.library.llama_free(self._context)
            self._context = None

    def clear(self) -> None:
        self.library.llama_memory_clear(self._memory, False)

    def copy(self, source: int, target: int) -> None:
        """Make sequence `target` share the cells of `source`."""
        self.library.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def drop(self, sequence: int, since: int = -1) -> None:
        """Remove a sequence from position `since` on, or completely."""
        self.library.llama_memory_seq_rm(self._memory, sequence, since, -1)

    def decode(self, tokens: Sequence[BatchToken]) -> Tensor:
        """(M, V): the logits of the tokens that need them, in order."""
        starts = range(0, len(tokens), MAX_BATCH_TOKENS)
        logits = [self._decode(tokens[start : start + MAX_BATCH_TOKENS]) for start in starts]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _decode(self, tokens: Sequence[BatchToken]) -> Tensor:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for at, (token, position, sequence, needs_logits) in enumerate(tokens):
            batch.token[at] = token
            batch.pos[at] = position
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = sequence
            batch.logits[at] = needs_logits
        status = self.library.llama_decode(self._context, batch)
        if status == 1:
            raise FullCacheError
        if status != 0:
            raise RuntimeError(f"llama.cpp cannot decode this batch (status {status})")
        count = sum(needs_logits for *_, needs_logits in tokens)
        if not count:
            return torch.empty(0, self.vocab_size)
        pointer = ctypes.cast(self.library.llama_get_logits(self._context), ctypes.POINTER(ctypes.c_float))
        logits = np.ctypeslib.as_array(pointer, (count, self.vocab_size))
        return torch.from_numpy(logits.copy())  # the next call overwrites them


ENGINE = "llama.cpp"
SPARE_CELLS_PER_ROW = 256
"""Cells reserved for new tokens of each sequence."""
ALL_LAYERS = 999


@dataclass
class LlamaState:
    """Sequences of a context and their tokens.

    A KV cache cell can belong to many sequences. A reordered row keeps its sequence id, a repeated row gets a
    free id that shares the cells, and a dropped row frees its id, so that no cell is copied.
    """

    model: LlamaCppModel
    context: LlamaContext
    sequences: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def select(self, rows_M: Tensor) -> LlamaState:
        rows = rows_M.tolist()
        if len(rows) > MAX_SEQUENCES:
            raise ValueError(
                f"llama.cpp supports {MAX_SEQUENCES} sequences: reduce batch_size, n or beam width"
            )
        kept = {self.sequences[row] for row in rows}
        for sequence in self.sequences:
            if sequence not in kept:
                self.context.drop(sequence)
        free = (sequence for sequence in range(MAX_SEQUENCES) if sequence not in kept)
        sequences: list[int] = []
        for row in rows:
            sequence = self.sequences[row]
            if sequence in sequences:
                target = next(free)
                self.context.copy(sequence, target)
                sequence = target
            sequences.append(sequence)
        self.sequences, self.rows = tuple(sequences), tuple(self.rows[row] for row in rows)
        return self

    def read(self, tokens: Sequence[Sequence[int]], all_logits: bool) -> Tensor:
        """Append tokens; returns the logits of all of them, or of the last one per sequence."""
        grown = tuple((*row, *new) for row, new in zip(self.rows, tokens, strict=True))
        try:
            logits = self.context.decode(_batch(self.sequences, tokens, self.rows, all_logits))
        except FullCacheError:
            self._grow_cache(2 * sum(map(len, grown)) + SPARE_CELLS_PER_ROW * len(grown))
            logits = self.context.decode(_batch(self.sequences, tokens, self.rows, all_logits))
        self.rows = grown
        return logits

    def _grow_cache(self, cells: int) -> None:
        """Read all tokens again into a larger cache."""
        self.context = self.model.new_context(max(cells, 2 * self.context.cells))
        self.sequences = tuple(range(len(self.rows)))
        if any(self.rows):
            self.context.decode(_batch(self.sequences, self.rows, [()] * len(self.rows), False))


def _batch(
    sequences: Sequence[int],
    tokens: Sequence[Sequence[int]],
    before: Sequence[Sequence[int]],
    all_logits: bool,
) -> list[BatchToken]:
    return [
        (token, len(past) + at, sequence, all_logits or at == len(new) - 1)
        for sequence, new, past in zip(sequences, tokens, before, strict=True)
        for at, token in enumerate(new)
    ]


class LlamaCppModel(Abilities):
    """A GGUF model that llama.cpp runs."""

    def __init__(self, path: str | Path, layers_on_gpu: int = 0) -> None:
        self._library = LLAMA_CPP.require("engine='llama.cpp'")
        _silence_log(self._library)
        self._file = open_gguf(Path(path))
        self.tokenizer: TokenizerLike | None = load_gguf_tokenizer(self._file)
        params = self._library.llama_model_default_params()
        params.n_gpu_layers = layers_on_gpu
        self._model = self._library.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ValueError(f"{path}: llama.cpp cannot load this file; is it newer than the library?")
        weakref.finalize(self, self._library.llama_model_free, self._model)
        self._idle: list[LlamaContext] = []
        vocabulary = self._library.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._library.llama_vocab_n_tokens(vocabulary)
        if self.tokenizer is not None and self.tokenizer.vocab_size > self.vocab_size:
            raise ValueError(
                f"{path}: the tokenizer has {self.tokenizer.vocab_size} tokens, the model only "
                f"{self.vocab_size}: the file is damaged"
            )

    @property
    def engine(self) -> str:
        return ENGINE

    @property
    def context(self) -> int:
        return self._library.llama_model_n_ctx_train(self._model)

    @property
    def rewindable(self) -> Self:
        return self

    @cached_property
    def output_matrix(self) -> Tensor | None:
        """(V, D), dequantised from the file on first use; None if the logits are capped."""
        return output_matrix_of_gguf(self._file)

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LlamaState]:
        if len(prompts) > MAX_SEQUENCES:
            raise ValueError(f"llama.cpp supports {MAX_SEQUENCES} sequences: use batch_size={MAX_SEQUENCES}")
        needed = sum(map(len, prompts)) + SPARE_CELLS_PER_ROW * len(prompts)
        state = LlamaState(self, self.new_context(needed), tuple(range(len(prompts))), ((),) * len(prompts))
        weakref.finalize(state, self._reuse, state.context)
        return step_from_logits(state.read(prompts, all_logits=False)), state

    def step(self, state: LlamaState, tokens_N: Tensor) -> tuple[Step, LlamaState]:
        return step_from_logits(state.read(tokens_N[:, None].tolist(), all_logits=False)), state

    def extend(self, state: LlamaState, tokens_NT: Tensor) -> tuple[Step, LlamaState]:
        return step_from_logits(state.read(tokens_NT.tolist(), all_logits=True)), state

    def rewind(self, state: LlamaState, tokens: int) -> LlamaState:
        if tokens:
            state.rows = tuple(row[:-tokens] for row in state.rows)
            for sequence, row in zip(state.sequences, state.rows, strict=True):
                state.context.drop(sequence, len(row))
        return state

    def new_context(self, cells: int) -> LlamaContext:
        """An empty context of at least `cells` cells: an idle one, or a new one."""
        for at, idle in enumerate(self._idle):
            if idle.cells >= cells:
                del self._idle[at]
                idle.clear()
                return idle
        self._idle.clear()
        rounded = 256 * -(-cells // 256)
        threads = min(torch.get_num_threads(), cpu_quota())
        return LlamaContext(self._library, self._model, rounded, threads, self.vocab_size)

    def _reuse(self, context: LlamaContext) -> None:
        self._idle.append(context)


def load_llama(path: Path, device: str) -> LlamaCppModel:
    """Load a GGUF file on the CPU, or on a GPU if llama.cpp supports it."""
    if device == "cpu":
        return LlamaCppModel(path)
    if not LLAMA_CPP.require("engine='llama.cpp'").llama_supports_gpu_offload():
        raise ValueError(
            f"device {device!r} is not supported: the installed llama-cpp-python has no GPU support; leave "
            "device out, or build it with GPU support"
        )
    return LlamaCppModel(path, ALL_LAYERS)


def _silence_log(library: Any) -> None:
    global _LOG_CALLBACK
    if _LOG_CALLBACK is None:
        _LOG_CALLBACK = library.llama_log_callback(lambda _level, _text, _data: None)
        library.llama_log_set(_LOG_CALLBACK, None)


_LOG_CALLBACK: Any = None
