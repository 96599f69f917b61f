"""The decoding state of a compiled Transformer: its paged KV cache.

Rows have different lengths without padding and share the blocks of common prefixes (`kv_cache`). Rows can
join, fork and leave. Results for a row are bit-identical in any batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.engine.engine_choice import cached_engines, has_compiled_head
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step
from unspool.lazy import gc_paused

if TYPE_CHECKING:
    from unspool.engine.kv_cache import PagedKVCache
    from unspool.engine.transformer_engine import EncoderEngine, TransformerEngine
    from unspool.models.transformer_lm import TransformerLM
    from unspool.models.transformer_seq2seq import TransformerSeq2Seq

Ints = NDArray[np.int64]


@dataclass
class CompiledState:
    """The KV cache of the rows, and the engine that reads it."""

    engine: TransformerEngine
    kv_cache: PagedKVCache
    head: Any
    """A head that torch computes; None if it is part of the compiled step."""
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

    def rewind(self, tokens: int) -> CompiledState:
        """Remove the last `tokens` tokens of every row."""
        self.kv_cache.rewind(tokens)
        return self

    def read_texts(self, texts: Sequence[Sequence[int]], rows_M: Tensor | None = None) -> tuple[Tensor, Ints]:
        """Append texts of any lengths to the rows, or to some rows in ascending order.

        Returns the input of the head at every token, (M, D), one text after the other, and the place of the
        last token of each text.
        """
        tokens, counts_N, last_N = self._flat(texts, rows_M)
        with self._lengths_restored_on_error():
            hidden = self.engine.read(self.kv_cache, tokens, counts_N).hidden
        return torch.from_numpy(hidden), last_N

    def read_rows(self, texts: Sequence[Sequence[int]], rows_M: Tensor | None = None) -> Step:
        """`read_texts`; the Step after each text."""
        hidden_MD, last_N = self.read_texts(texts, rows_M)
        return self.predict_step(hidden_MD[last_N])

    def _flat(self, texts: Sequence[Sequence[int]], rows_M: Tensor | None) -> tuple[Ints, Ints, Ints]:
        """All tokens, the number of new tokens of each row, and the place of the last token of each text."""
        lengths = np.array([len(text) for text in texts])
        counts_N = lengths
        if rows_M is not None:
            counts_N = np.zeros(self.kv_cache.rows, np.int64)
            counts_N[rows_M.numpy()] = lengths
        tokens = np.fromiter(chain.from_iterable(texts), np.int64, lengths.sum())
        return self.engine.check_tokens(tokens), counts_N, np.cumsum(lengths) - 1

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

    def extend(self, tokens_MT: Tensor, counts_N: Ints | None = None, columns: int = 0) -> Step:
        """Append T tokens to every row, or to those with counts_N = T; the Step has T rows for each."""
        tokens = self.engine.check_tokens(tokens_MT.numpy().reshape(-1))
        with self._lengths_restored_on_error():
            return self._read(tokens, np.full(*tokens_MT.shape) if counts_N is None else counts_N, columns)

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

    def exits(self, texts: Sequence[Sequence[int]], layers: Sequence[int]) -> Step:
        """Append texts; the Step after each, with log-probabilities of early layers (0: no block)."""
        tokens, counts_N, last_N = self._flat(texts, None)
        output = self.engine.read(self.kv_cache, tokens, counts_N, layers)
        early_NED = output.early[last_N]
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


def prompt_state(model: TransformerLM, rows: int) -> CompiledState:
    """A state of empty rows."""
    (engine,) = cached_engines(model, lambda: _build_language_model(model))
    return _empty_state(model, engine, rows)


def translation_state(model: TransformerSeq2Seq, sources: Sequence[Sequence[int]]) -> CompiledState:
    """A state for translations of these sources, which the encoder has read."""
    engine, encoder = cached_engines(model, lambda: _build_translator(model))
    return _empty_state(model, engine, len(sources), encoder.read(sources, engine.shape))


@gc_paused()  # the first engine imports numba and loads kernels from disk
def _build_language_model(model: TransformerLM) -> tuple[TransformerEngine]:
    from unspool.engine.compiled_transformer import compiled_language_model

    return (compiled_language_model(model),)


@gc_paused()
def _build_translator(model: TransformerSeq2Seq) -> tuple[TransformerEngine, EncoderEngine]:
    from unspool.engine.compiled_transformer import compiled_decoder, compiled_encoder

    return compiled_decoder(model), compiled_encoder(model)


def _empty_state(
    model: TransformerLM | TransformerSeq2Seq,
    engine: TransformerEngine,
    rows: int,
    sources: PagedKVCache | None = None,
) -> CompiledState:
    from unspool.engine.kv_cache import PagedKVCache

    head = None if has_compiled_head(model) else model.head
    return CompiledState(engine, PagedKVCache.empty(engine.shape, rows), head, sources)


def predict_row_by_row(head: Any, hidden_MD: Tensor) -> Step:
    """The Step of a torch head, one row at a time: in a batch its sums could depend on the number of rows."""
    steps = [predict_step(head, row_1D) for row_1D in hidden_MD.unsqueeze(1)]
    norms = [step.log_norm_N for step in steps if step.log_norm_N is not None]
    return Step(
        torch.cat([step.logp_NV for step in steps]),
        hidden_MD,
        log_norm_N=torch.cat(norms) if norms else None,
    )


class CompiledForking:
    """`interfaces.Forking` of compiled language models: new rows share the KV cache of a prefix of others.

    Results are bit-identical however a text was split into calls.
    """

    def fork_rows(self, state: CompiledState, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """Append rows, each a prefix of an existing row."""
        cache, before = state.kv_cache, state.kv_cache.rows
        cache.select(np.concatenate([np.arange(before), rows_K.numpy()]))
        tokens_N = np.zeros(cache.rows, np.int64)
        tokens_N[before:] = cache.lengths[before:] - lengths_K.numpy()
        cache.rewind(tokens_N)
        return state

    @torch.inference_mode()
    def read_rows(
        self, state: CompiledState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, CompiledState]:
        """Append texts of any lengths to some rows; the Step after the last token of each."""
        return state.read_rows(texts, rows_M), state

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
            joined.kv_cache.join(other.kv_cache)
            if joined.sources is not None and other.sources is not None:
                joined.sources.join(other.sources)
                joined.columns = max(joined.columns, other.columns)
        return joined

    @torch.inference_mode()
    def extend_rows(
        self, state: CompiledState, rows_M: Tensor, tokens_MT: Tensor
    ) -> tuple[Step, CompiledState]:
        """Append T tokens to some rows, in ascending order; the Step has T rows for each of them."""
        T = tokens_MT.shape[1]
        counts_N = np.zeros(state.kv_cache.rows, np.int64)
        counts_N[rows_M.numpy()] = T
        return state.extend(tokens_MT, counts_N, state.columns if T == 1 else 0), state

    def rewind_rows(self, state: CompiledState, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Remove the last tokens_M tokens of some rows."""
        tokens_N = np.zeros(state.kv_cache.rows, np.int64)
        tokens_N[rows_M.numpy()] = tokens_M.numpy()
        state.kv_cache.rewind(tokens_N)
        return state
