"""A GGUF file run by llama.cpp, as a StepModel: quantised weights, batches of rows, beams that copy no cache.

    model = us.load("file.gguf", engine="llama.cpp")

A state has a context of llama.cpp to itself; one that is no longer used serves the next. Where a cache is
full, a larger one is made and the rows are read anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from unspool.adapters.llama_cpp.llama_context import SEQUENCES, FullCacheError, LlamaContext, Token
from unspool.adapters.llama_cpp.row_sequences import moves
from unspool.adapters.needed_packages import LLAMA_CPP
from unspool.heads.softmax import normalised
from unspool.models.load.gguf_file import open_gguf
from unspool.models.load.output_matrix import output_matrix_of_gguf
from unspool.models.load.tokenizer import text_of_gguf
from unspool.protocols import Abilities, Step, Text

ENGINE = "llama.cpp"
ROOM = 256
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
        plan = moves(self.sequences, rows, SEQUENCES)
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
            self._move(2 * sum(map(len, grown)) + ROOM * len(grown))
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
) -> list[Token]:
    return [
        (token, len(past) + place, sequence, every or place == len(new) - 1)
        for sequence, new, past in zip(sequences, tokens, before, strict=True)
        for place, token in enumerate(new)
    ]


class LlamaCppModel(Abilities):
    """Continues prompts with llama.cpp."""

    def __init__(self, path: str | Path, layers_on_gpu: int = 0) -> None:
        self._library = LLAMA_CPP.imported("engine='llama.cpp'")
        _quiet(self._library)
        self._file = open_gguf(Path(path))
        self.text: Text | None = text_of_gguf(self._file)
        asked = self._library.llama_model_default_params()
        asked.n_gpu_layers = layers_on_gpu
        self._model = self._library.llama_model_load_from_file(str(path).encode(), asked)
        if not self._model:
            raise ValueError(f"{path}: llama.cpp cannot load this file; is it newer than the library?")
        weakref.finalize(self, self._library.llama_model_free, self._model)
        self._idle: list[LlamaContext] = []
        vocabulary = self._library.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._library.llama_vocab_n_tokens(vocabulary)
        if self.text is not None and self.text.vocab_size > self.vocab_size:
            raise ValueError(
                f"{path}: the tokenizer knows {self.text.vocab_size} tokens, the model only "
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
        if len(prompts) > SEQUENCES:
            raise ValueError(f"llama.cpp holds {SEQUENCES} rows at most: say batch_size={SEQUENCES}")
        needed = sum(map(len, prompts)) + ROOM * len(prompts)
        state = LlamaState(self, self.new_context(needed), tuple(range(len(prompts))), ((),) * len(prompts))
        weakref.finalize(state, self._take_back, state.context)
        return _said(state.read(prompts, every=False)), state

    def step(self, state: LlamaState, tokens_N: Tensor) -> tuple[Step, LlamaState]:
        """Append one token to every row."""
        return _said(state.read([(token,) for token in tokens_N.tolist()], every=False)), state

    def extend(self, state: LlamaState, tokens_NT: Tensor) -> tuple[Step, LlamaState]:
        """Append T tokens to every row; the Step has T rows for each of them."""
        return _said(state.read(tokens_NT.tolist(), every=True)), state

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


def _said(logits_NV: Tensor) -> Step:
    return Step(normalised(logits_NV), log_norm_N=logits_NV.logsumexp(-1))


def _quiet(library: Any) -> None:
    """llama.cpp tells its whole story on standard error unless somebody else listens."""
    global _LISTENER
    if _LISTENER is None:
        _LISTENER = library.llama_log_callback(lambda _level, _text, _data: None)
        library.llama_log_set(_LISTENER, None)


_LISTENER: Any = None
