"""The decoding state of a compiled Transformer: its paged KV cache.

Rows have different lengths without padding and share the blocks of common prefixes (`kv_cache`). Rows can
join, fork and leave. Results for a row are bit-identical in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unspool.heads.softmax import predict_step
from unspool.interfaces import Step

if TYPE_CHECKING:
    from unspool.engine.kv_cache import PagedKVCache
    from unspool.engine.transformer_engine import TransformerEngine


@dataclass
class CompiledState:
    """The KV cache of the rows, and the engine that reads it."""

    engine: TransformerEngine
    kv_cache: PagedKVCache
    head: Any
    """A head that torch computes; None if it is part of the compiled step."""
    unread: Sequence[int] | None
    """The length of each prompt, until the prompts are read."""
    sources: PagedKVCache | None = None
    """The keys and values of the rows' sources, shared by the rows of one source."""
    columns: int = 0
    """Tokens of the longest source."""

    def __post_init__(self) -> None:
        if self.sources is not None:
            self.columns = max(self.columns, int(self.sources.lengths.max()))

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return int(self.kv_cache.lengths.max())

    def select(self, rows_M: Tensor) -> CompiledState:
        """Reorder, repeat or drop rows; blocks are copied only when a row writes."""
        self.kv_cache.select(rows_M.numpy())
        if self.sources is not None:
            self.sources.select(rows_M.numpy())
        return self

    def join(self, other: CompiledState) -> CompiledState:
        """Append the rows of another state of the same model."""
        self.kv_cache.join(other.kv_cache)
        if self.sources is not None and other.sources is not None:
            self.sources.join(other.sources)
            self.columns = max(self.columns, other.columns)
        return self

    def rewind(self, tokens: int) -> CompiledState:
        """Remove the last `tokens` tokens of every row."""
        self.kv_cache.rewind(tokens)
        return self

    def rewind_rows(self, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Remove the last tokens_M tokens of some rows."""
        tokens_N = np.zeros(self.kv_cache.rows, np.int64)
        tokens_N[rows_M.numpy()] = tokens_M.numpy()
        self.kv_cache.rewind(tokens_N)
        return self

    def fork_rows(self, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """Append rows, each a prefix of an existing row."""
        before = self.kv_cache.rows
        self.kv_cache.select(np.concatenate([np.arange(before), rows_K.numpy()]))
        tokens_N = np.zeros(self.kv_cache.rows, np.int64)
        tokens_N[before:] = self.kv_cache.lengths[before:] - lengths_K.numpy()
        self.kv_cache.rewind(tokens_N)
        return self

    def read_rows(self, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> Step:
        """Append texts of any lengths to some rows, in ascending order; the Step after each text."""
        counts_N = np.zeros(self.kv_cache.rows, np.int64)
        counts_N[rows_M.numpy()] = [len(text) for text in texts]
        flat = np.array([token for text in texts for token in text], np.int64)
        flat = self.engine.check_tokens(flat)
        with self._lengths_restored_on_error():
            hidden = self.engine.read(self.kv_cache, flat, counts_N).hidden
        last_M = np.cumsum([len(text) for text in texts]) - 1
        return self.predict_step(torch.from_numpy(hidden[last_M]))

    def extend_rows(self, rows_M: Tensor, tokens_MT: Tensor) -> Step:
        """Append T tokens to some rows, in ascending order; the Step has T rows for each of them."""
        T = tokens_MT.shape[1]
        counts_N = np.zeros(self.kv_cache.rows, np.int64)
        counts_N[rows_M.numpy()] = T
        flat = self.engine.check_tokens(tokens_MT.numpy().reshape(-1))
        with self._lengths_restored_on_error():
            return self._read(flat, counts_N, self.columns if T == 1 else 0)

    @contextmanager
    def _lengths_restored_on_error(self) -> Iterator[None]:
        before_N = self.kv_cache.lengths.copy()
        try:
            yield
        except BaseException:
            self.kv_cache.lengths = before_N
            raise

    def step(self, tokens_N: Tensor) -> Step:
        """Append one token to every row."""
        tokens = self.engine.check_tokens(tokens_N.numpy())
        return self._read(tokens, None, self.columns)

    def extend(self, tokens_NT: Tensor) -> Step:
        """Append T tokens to every row; the Step has T rows for each of them."""
        flat, counts_N, _ = self._flatten(tokens_NT)
        return self._read(flat, counts_N, 0)

    def _read(self, tokens: Any, counts_N: Any, columns: int) -> Step:
        output = self.engine.read(
            self.kv_cache,
            tokens,
            counts_N,
            with_logp=self.head is None,
            sources=self.sources,
            source_columns=columns,
        )
        hidden_MD = torch.from_numpy(output.hidden)
        attention_MS = torch.from_numpy(output.source_attention)[:, :columns] if columns else None
        if self.head is not None:
            return replace(self.predict_step(hidden_MD), attention=attention_MS)
        log_norm_M = torch.from_numpy(output.log_norm)
        return Step(torch.from_numpy(output.logp), hidden_MD, attention_MS, log_norm_N=log_norm_M)

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T, D): the input of the head at every token; zeros on the left of shorter prompts."""
        flat, counts_N, real_NT = self._flatten(tokens_NT)
        return _scatter(self.engine.read(self.kv_cache, flat, counts_N).hidden, real_NT)

    def exits(self, tokens_NT: Tensor, layers: Sequence[int]) -> Step:
        """Append tokens; the Step after the last token of each row, with log-probabilities of early layers.

        Layer 0 is before the first block.
        """
        flat, counts_N, _ = self._flatten(tokens_NT)
        output = self.engine.read(self.kv_cache, flat, counts_N, layers)
        last_N = np.cumsum(counts_N) - 1
        early_NED = output.early[:, last_N].swapaxes(0, 1)
        N, E, D = early_NED.shape
        early = self.predict_step(torch.from_numpy(early_NED.reshape(N * E, D))).logp_NV
        return replace(
            self.predict_step(torch.from_numpy(output.hidden[last_N])), exits_NEV=early.view(N, E, -1)
        )

    def predict_step(self, hidden_MD: Tensor) -> Step:
        """The Step of the head's inputs."""
        if self.head is None:
            logp, log_norm = self.engine.head_logp(hidden_MD.numpy())
            return Step(torch.from_numpy(logp), hidden_MD, log_norm_N=torch.from_numpy(log_norm))
        return predict_row_by_row(self.head, hidden_MD)

    def _flatten(self, tokens_NT: Tensor) -> tuple[Any, Any, Any]:
        """The tokens without padding; the count of each row; the mask (N, T) of real tokens."""
        N, T = tokens_NT.shape
        counts_N = np.full(N, T) if self.unread is None else np.array(self.unread)
        self.unread = None
        real_NT = np.arange(T) >= T - counts_N[:, None]
        flat = tokens_NT.numpy()[real_NT]
        return self.engine.check_tokens(flat), counts_N, real_NT


def predict_row_by_row(head: Any, hidden_MD: Tensor) -> Step:
    """The Step of a torch head, one row at a time: in a batch its sums could depend on the number of rows."""
    steps = [predict_step(head, row_1D) for row_1D in hidden_MD.unsqueeze(1)]
    norms = [step.log_norm_N for step in steps if step.log_norm_N is not None]
    return Step(
        torch.cat([step.logp_NV for step in steps]),
        hidden_MD,
        log_norm_N=torch.cat(norms) if norms else None,
    )


def _scatter(vectors_MD: Any, real_NT: Any) -> Tensor:
    """(N, T, D): vectors at the real tokens, zeros at padding."""
    if real_NT.all():
        return torch.from_numpy(vectors_MD.reshape(*real_NT.shape, -1))
    scattered = np.zeros((*real_NT.shape, vectors_MD.shape[1]), np.float32)
    scattered[real_NT] = vectors_MD
    return torch.from_numpy(scattered)


class CompiledForking:
    """`interfaces.Forking` of compiled language models: new rows share the KV cache of a prefix of others.

    Results are bit-identical however a text was split into calls.
    """

    def fork_rows(self, state: CompiledState, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """Append rows, each a prefix of an existing row."""
        return state.fork_rows(rows_K, lengths_K)

    @torch.inference_mode()
    def read_rows(
        self, state: CompiledState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, CompiledState]:
        """Append texts of any lengths to some rows; the Step after the last token of each."""
        return state.read_rows(rows_M, texts), state

    def bytes_held(self, state: CompiledState, rows_M: Tensor) -> int:
        """The memory of the blocks of these rows."""
        return state.kv_cache.bytes_held(rows_M.numpy())

    def compact(self, state: CompiledState) -> CompiledState:
        """The same rows in less memory, if the KV cache is mostly empty."""
        state.kv_cache.compact()
        return state


class CompiledJoining:
    """`interfaces.Joining` of compiled Transformers: rows of many requests join, advance and leave one state.

    Results for a row are bit-identical in any batch.
    """

    def join(self, states: Sequence[CompiledState]) -> CompiledState:
        """All rows in the first state."""
        joined = states[0]
        for other in states[1:]:
            joined = joined.join(other)
        return joined

    @torch.inference_mode()
    def extend_rows(
        self, state: CompiledState, rows_M: Tensor, tokens_MT: Tensor
    ) -> tuple[Step, CompiledState]:
        """Append T tokens to some rows."""
        return state.extend_rows(rows_M, tokens_MT), state

    def rewind_rows(self, state: CompiledState, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Remove the last tokens of some rows."""
        return state.rewind_rows(rows_M, tokens_M)
