"""A neural trigram language model: predicts the next token from the last two.

    p(w_{t+2} = w | w_t, w_{t+1}) = softmax_w β h(e(w_t), e(w_{t+1}))ᵀ e(w)
    h(e, e′) = W₂ tanh(W₁ [e ; e′] + b) + b′

Bengio et al. 2003, §2 (papers.bib: bengio2003neural). Without randomness (β → ∞) it must repeat a pair of
tokens within V² + 1 steps and then loops. Differs from the paper: the output vectors are the input
embedding, without direct connections. A prompt of one token is treated as if the token occurred twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.data.batch import Batch
from unspool.heads import HeadConfig
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step, TokenizerLike
from unspool.models.model_config import ModelSettings
from unspool.models.sequence_model import LanguageModel, inference_method, unit_embedding
from unspool.nn.linear import Linear


@dataclass(frozen=True, kw_only=True)
class TrigramConfig(ModelSettings):
    """Settings of a neural trigram model."""

    vocab_size: int = integer(at_least=1)
    width: int = integer(at_least=1)
    inner_width: int = integer(at_least=1)
    beta: float = number(1.0, above=0)
    """Inverse temperature, the factor of h."""
    dropout: float = number(0.0, at_least=0, below=1)
    head: HeadConfig | None = None
    """The head; None means a softmax tied to the embedding."""

    def build(self, tokenizer: TokenizerLike | None = None) -> Trigram:
        return Trigram(self, tokenizer)


@dataclass(frozen=True)
class TrigramState:
    """The tokens of every row; only the last two matter, the others allow rewinding."""

    tokens_NT: Tensor

    def select(self, rows_M: Tensor) -> TrigramState:
        return TrigramState(self.tokens_NT.index_select(0, rows_M))


class Trigram(LanguageModel):
    """Predicts the next token from the last two."""

    config: TrigramConfig
    context = None

    def __init__(self, config: TrigramConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, TrigramConfig, tokenizer)
        c = config
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.up = Linear(2 * c.width, c.inner_width, bias=True)
        self.down = Linear(c.inner_width, c.width, bias=True)
        self.dropout = nn.Dropout(c.dropout)
        self.head: Any = self.new_head(tied=True)

    @property
    def rewindable(self) -> Self:
        return self

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """(N, T) → (N, T, D): β h at every position; the first token counts twice."""
        before_NT = torch.cat((tokens_NT[:, :1], tokens_NT[:, :-1]), dim=1)
        return self._query(before_NT, tokens_NT)

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.hidden(batch.inputs_NT)

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TrigramState]:
        pairs = [[prompt[-2] if len(prompt) > 1 else prompt[-1], prompt[-1]] for prompt in prompts]
        return self._predict(TrigramState(torch.tensor(pairs, device=self.device)))

    @inference_method
    def step(self, state: TrigramState, tokens_N: Tensor) -> tuple[Step, TrigramState]:
        return self._predict(TrigramState(torch.cat((state.tokens_NT, tokens_N[:, None]), dim=1)))

    @inference_method
    def extend(self, state: TrigramState, tokens_NT: Tensor) -> tuple[Step, TrigramState]:
        all_NT = torch.cat((state.tokens_NT, tokens_NT), dim=1)
        new = tokens_NT.shape[1]
        hidden_NTD = self._query(all_NT[:, -new - 1 : -1], all_NT[:, -new:])
        return predict_step(self.head, hidden_NTD.flatten(0, 1)), TrigramState(all_NT)

    def rewind(self, state: TrigramState, tokens: int) -> TrigramState:
        return TrigramState(state.tokens_NT[:, : state.tokens_NT.shape[1] - tokens])

    def _query(self, before: Tensor, last: Tensor) -> Tensor:
        pair = torch.cat((self.embed(before), self.embed(last)), dim=-1)
        query: Tensor = self.down(self.dropout(torch.tanh(self.up(self.dropout(pair)))))
        return query * self.config.beta

    def _predict(self, state: TrigramState) -> tuple[Step, TrigramState]:
        hidden_ND = self._query(state.tokens_NT[:, -2], state.tokens_NT[:, -1])
        return predict_step(self.head, hidden_ND), state
