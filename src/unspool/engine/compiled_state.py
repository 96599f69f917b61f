"""What a Transformer remembers of its rows where its steps are compiled: blocks of keys and values.

Rows of different lengths stand side by side without padding, share what they have in common until one of
them writes, and come and go (`nn.compiled.pool`). What is said of a row is the same, to the bit, whatever
the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unspool.engine.token_range import in_vocabulary
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step

if TYPE_CHECKING:
    from unspool.engine.kv_cache import BlockPool
    from unspool.engine.transformer_engine import Engine


@dataclass
class CompiledState:
    """The blocks of every row, and the compiled step that reads them."""

    engine: Engine
    pool: BlockPool
    head: Any
    """A head that is no part of the compiled step; None where it is."""
    unread: Sequence[int] | None
    """How many tokens each prompt has, until they are read."""
    sources: BlockPool | None = None
    """Keys and values that a decoder's rows look at; the rows of one source share them."""
    columns: int = 0
    """Tokens of the longest source."""

    def __post_init__(self) -> None:
        if self.sources is not None:
            self.columns = max(self.columns, int(self.sources.lengths.max()))

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return int(self.pool.lengths.max())

    def select(self, rows_M: Tensor) -> CompiledState:
        """Reorder, repeat or drop rows: no key and no value is copied before a row writes."""
        self.pool.select(rows_M.numpy())
        if self.sources is not None:
            self.sources.select(rows_M.numpy())
        return self

    def join(self, other: CompiledState) -> CompiledState:
        """Take the rows of another state of the same model in, behind one's own."""
        self.pool.join(other.pool)
        if self.sources is not None and other.sources is not None:
            self.sources.join(other.sources)
            self.columns = max(self.columns, other.columns)
        return self

    def rewind(self, tokens: int) -> CompiledState:
        """Forget the last `tokens` tokens of every row."""
        self.pool.rewind(tokens)
        return self

    def rewind_rows(self, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Forget the last tokens of some rows."""
        tokens_N = np.zeros(self.pool.rows, np.int64)
        tokens_N[rows_M.numpy()] = tokens_M.numpy()
        self.pool.rewind(tokens_N)
        return self

    def fork_rows(self, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """New rows behind all others, each the beginning of one that is there."""
        before = self.pool.rows
        self.pool.select(np.concatenate([np.arange(before), rows_K.numpy()]))
        tokens_N = np.zeros(self.pool.rows, np.int64)
        tokens_N[before:] = self.pool.lengths[before:] - lengths_K.numpy()
        self.pool.rewind(tokens_N)
        return self

    def read_rows(self, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> Step:
        """Append texts of any lengths to some rows, named in their order; what is said behind each."""
        counts_N = np.zeros(self.pool.rows, np.int64)
        counts_N[rows_M.numpy()] = [len(text) for text in texts]
        flat = np.array([token for text in texts for token in text], np.int64)
        flat = in_vocabulary(flat, self.engine.shape.vocab_size)
        before_N = self.pool.lengths.copy()
        try:
            hidden = self.engine.read(self.pool, flat, counts_N).hidden
        except BaseException:
            self.pool.lengths = before_N
            raise
        last_M = np.cumsum([len(text) for text in texts]) - 1
        return self.say(torch.from_numpy(hidden[last_M]))

    def extend_rows(self, rows_M: Tensor, tokens_MT: Tensor) -> Step:
        """Append T tokens to some rows, named in their order; the Step has T rows for each of them."""
        T = tokens_MT.shape[1]
        counts_N = np.zeros(self.pool.rows, np.int64)
        counts_N[rows_M.numpy()] = T
        flat = in_vocabulary(tokens_MT.numpy().reshape(-1), self.engine.shape.vocab_size)
        before_N = self.pool.lengths.copy()
        try:
            return self._said(flat, counts_N, self.columns if T == 1 else 0)
        except BaseException:
            self.pool.lengths = before_N
            raise

    def step(self, tokens_N: Tensor) -> Step:
        """Append one token to every row."""
        tokens = in_vocabulary(tokens_N.numpy(), self.engine.shape.vocab_size)
        return self._said(tokens, None, self.columns)

    def extend(self, tokens_NT: Tensor) -> Step:
        """Append T tokens to every row; the Step has T rows for each of them."""
        flat, counts_N, _ = self._laid_flat(tokens_NT)
        return self._said(flat, counts_N, 0)

    def _said(self, tokens: Any, counts_N: Any, look: int) -> Step:
        plain = self.head is None
        said = self.engine.read(self.pool, tokens, counts_N, say=plain, sources=self.sources, look=look)
        hidden_MD = torch.from_numpy(said.hidden)
        looked_MS = torch.from_numpy(said.looked)[:, :look] if look else None
        if not plain:
            return replace(self.say(hidden_MD), attention=looked_MS)
        log_norm_M = torch.from_numpy(said.log_norm)
        return Step(torch.from_numpy(said.logp), hidden_MD, looked_MS, log_norm_N=log_norm_M)

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T, D): what the head reads at every token; zeros on the left of shorter prompts."""
        flat, counts_N, real_NT = self._laid_flat(tokens_NT)
        return _spread(self.engine.read(self.pool, flat, counts_N).hidden, real_NT)

    def exits(self, tokens_NT: Tensor, layers: Sequence[int]) -> Step:
        """Append tokens; what is said behind the last of each row, and what early layers would have said.

        A layer is a number of blocks: 0 is before the first one.
        """
        flat, counts_N, _ = self._laid_flat(tokens_NT)
        read = self.engine.read(self.pool, flat, counts_N, layers)
        last_N = np.cumsum(counts_N) - 1
        early_NED = read.early[:, last_N].swapaxes(0, 1)
        N, E, D = early_NED.shape
        early = self.say(torch.from_numpy(early_NED.reshape(N * E, D))).logp_NV
        return replace(self.say(torch.from_numpy(read.hidden[last_N])), exits_NEV=early.view(N, E, -1))

    def say(self, hidden_MD: Tensor) -> Step:
        """What the head says of hidden vectors."""
        if self.head is None:
            logp, log_norm = self.engine.say(hidden_MD.numpy())
            return Step(torch.from_numpy(logp), hidden_MD, log_norm_N=torch.from_numpy(log_norm))
        return said_one_by_one(self.head, hidden_MD)

    def _laid_flat(self, tokens_NT: Tensor) -> tuple[Any, Any, Any]:
        """All real tokens row after row, how many each row has, and where they stand in (N, T)."""
        N, T = tokens_NT.shape
        counts_N = np.full(N, T) if self.unread is None else np.array(self.unread)
        self.unread = None
        real_NT = np.arange(T) >= T - counts_N[:, None]
        flat = tokens_NT.numpy()[real_NT]
        return in_vocabulary(flat, self.engine.shape.vocab_size), counts_N, real_NT


def said_one_by_one(head: Any, hidden_MD: Tensor) -> Step:
    """What a head of torch's says. Its sums may depend on how many rows there are: one by one they do not."""
    steps = [predict_step(head, row_1D) for row_1D in hidden_MD.unsqueeze(1)]
    norms = [step.log_norm_N for step in steps if step.log_norm_N is not None]
    return Step(
        torch.cat([step.logp_NV for step in steps]),
        hidden_MD,
        log_norm_N=torch.cat(norms) if norms else None,
    )


def _spread(vectors_MD: Any, real_NT: Any) -> Tensor:
    """(N, T, D): vectors where the real tokens stand."""
    if real_NT.all():
        return torch.from_numpy(vectors_MD.reshape(*real_NT.shape, -1))
    spread = np.zeros((*real_NT.shape, vectors_MD.shape[1]), np.float32)
    spread[real_NT] = vectors_MD
    return torch.from_numpy(spread)


class CompiledForking:
    """`protocols.Forking`, of the language models whose steps are compiled.

    Rows of a compiled state that begin as parts of others: their keys and values are shared, not read again.

    What is said of a row is the same, to the bit, however its text was cut
    (`nn.compiled.transformer_engine`).
    """

    def fork_rows(self, state: CompiledState, rows_K: Tensor, lengths_K: Tensor) -> CompiledState:
        """New rows behind all others, each the beginning of one that is there."""
        return state.fork_rows(rows_K, lengths_K)

    @torch.inference_mode()
    def read_rows(
        self, state: CompiledState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, CompiledState]:
        """Append texts of any lengths to some rows; what is said behind the last token of each."""
        return state.read_rows(rows_M, texts), state

    def bytes_held(self, state: CompiledState, rows_M: Tensor) -> int:
        """The memory of all blocks that these rows have."""
        return state.pool.bytes_held(rows_M.numpy())

    def compact(self, state: CompiledState) -> CompiledState:
        """The same rows in a smaller pool, where theirs is mostly empty."""
        state.pool.compact()
        return state


class CompiledJoining:
    """`protocols.Joining`, of the Transformers whose steps are compiled.

    Rows of many askers in one compiled state: they join it, go on in it at their own pace, and leave it.

    What is said of a row is the same, to the bit, whoever else is there (`nn.compiled.transformer_engine`).
    """

    def join(self, states: Sequence[CompiledState]) -> CompiledState:
        """The rows of all states, in that of the first."""
        joined = states[0]
        for other in states[1:]:
            joined = joined.join(other)
        return joined

    @torch.inference_mode()
    def extend_rows(
        self, state: CompiledState, rows_M: Tensor, tokens_MT: Tensor
    ) -> tuple[Step, CompiledState]:
        """Append T tokens to some of the rows."""
        return state.extend_rows(rows_M, tokens_MT), state

    def rewind_rows(self, state: CompiledState, rows_M: Tensor, tokens_M: Tensor) -> CompiledState:
        """Forget the last tokens of some of the rows."""
        return state.rewind_rows(rows_M, tokens_M)
