"""Recurrent language model (GRU or LSTM).

    h_t = RNN(embed(y_t), h_{t−1}),   log p(· | y_{≤t}) = head(h_t)

Mikolov et al. 2010, §2 (papers.bib: mikolov2010recurrent), with a GRU or an LSTM in place of the plain
network. Its state has a fixed size, so the context is unlimited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.heads.softmax import predict_step
from unspool.interfaces import Step
from unspool.models.model_config import VocabularyOptions, check_settings
from unspool.models.sequence_model import LanguageModel, inference_method, unit_embedding
from unspool.models.sources import pad_rows
from unspool.nn.rnn import CELLS

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True, kw_only=True)
class RNNConfig(VocabularyOptions):
    """Settings of a recurrent language model."""

    width: int
    """Of the embedding, and of every layer."""
    layers: int = 1
    cell: str = "lstm"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self, cell=CELLS)

    def build(self, tokenizer: TokenizerLike | None = None) -> RNNLM:
        return RNNLM(self, tokenizer)


@dataclass(frozen=True)
class RNNState:
    """The recurrent state of every row: (N, L, S)."""

    state_NLS: Tensor

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> RNNState:
        return RNNState(self.state_NLS.index_select(0, rows_M))


class RNNLM(LanguageModel):
    """Reads tokens left to right and says how probable each next one is. `engine` is always "torch"."""

    config: RNNConfig
    context = None

    def __init__(self, config: RNNConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, RNNConfig, tokenizer)
        c = config
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.dropout = nn.Dropout(c.dropout)
        self.rnn = CELLS[c.cell](c.width, c.width, c.layers, dropout=c.dropout)
        self.head: Any = self.new_head(c.tied)

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D): what the head reads at every position."""
        out_NTD, _ = self.rnn.read(self.dropout(self.embed(tokens_NT)))
        hidden_NTD: Tensor = self.dropout(out_NTD)
        return hidden_NTD

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.hidden(batch.inputs_NT)

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, RNNState]:
        tokens_NT, lengths_N = pad_rows(prompts, self.device)
        _, state_NLS = self.rnn.read(self.embed(tokens_NT), lengths_N=lengths_N)
        return self._predict(self.rnn.top(state_NLS), state_NLS)

    @inference_method
    def step(self, state: RNNState, tokens_N: Tensor) -> tuple[Step, RNNState]:
        return self._predict(*self.rnn.step(self.embed(tokens_N), state.state_NLS))

    def _predict(self, hidden_ND: Tensor, state_NLS: Tensor) -> tuple[Step, RNNState]:
        return predict_step(self.head, hidden_ND), RNNState(state_NLS)
