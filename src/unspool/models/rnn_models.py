"""Recurrent models: a language model and an encoder–decoder, with GRU or LSTM cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number, one_of
from unspool.data.batch import Batch
from unspool.heads.softmax import predict_step
from unspool.interfaces import Step, TokenizerLike
from unspool.models.encoders import RNNEncoderConfig
from unspool.models.model_config import PairOptions, VocabularyOptions
from unspool.models.sequence_model import EncoderDecoder, LanguageModel, inference_method, unit_embedding
from unspool.models.sources import EncodedSources, batch_sources, pad_rows
from unspool.nn.linear import Linear
from unspool.nn.rnn import ATTENTION_SCORES, CELLS, attend, last_context, mean_context, padding_mask


@dataclass(frozen=True, kw_only=True)
class RNNConfig(VocabularyOptions):
    """Settings of a recurrent language model."""

    width: int = integer(at_least=1)
    """Width of the embedding and of every layer."""
    layers: int = integer(1, at_least=1)
    cell: Literal["gru", "lstm"] = "lstm"
    dropout: float = number(0.0, at_least=0, below=1)

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
    """A recurrent language model (GRU or LSTM).

        h_t = RNN(embed(y_t), h_{t−1}),   log p(· | y_{≤t}) = head(h_t)

    Mikolov et al. 2010, §2 (papers.bib: mikolov2010recurrent), with a GRU or an LSTM in place of the plain
    network. Its state has a fixed size, so the context is unlimited. `engine` is always "torch".
    """

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
        """(N, T) → (N, T, D): the input of the head at every position."""
        out_NTD, _ = self.rnn.read(self.dropout(self.embed(tokens_NT)))
        return self.dropout(out_NTD)

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


FIXED = ("last", "mean")
"""Contexts that are the same for every token."""


@dataclass(frozen=True, kw_only=True)
class RNNSeq2SeqConfig(PairOptions):
    """Settings of a recurrent encoder–decoder."""

    width: int = integer(at_least=1)
    """Width of the embedding, of every decoder layer, and of each direction of the encoder."""
    encoder_layers: int = integer(1, at_least=1)
    decoder_layers: int = integer(1, at_least=1)
    cell: Literal["gru", "lstm"] = "gru"
    bidirectional: bool = True
    """The encoder also reads right to left."""
    context_kind: str = "additive"
    """"last", "mean", or attention by its score: "additive", "bilinear", "dot"."""
    dropout: float = number(0.0, at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("RNNSeq2SeqConfig.context_kind", self.context_kind, (*FIXED, *ATTENTION_SCORES))
        if self.context_kind == "dot" and self.bidirectional:
            raise ValueError(
                "context_kind='dot' needs an encoder as wide as the decoder, and one that reads in both "
                "directions is twice as wide: choose 'bilinear', or bidirectional=False"
            )

    def build(self, tokenizer: TokenizerLike | None = None) -> RNNSeq2Seq:
        return RNNSeq2Seq(self, tokenizer)


@dataclass(frozen=True)
class RNNSeq2SeqState:
    """The recurrent state of the decoder and the encoded sources."""

    state_NLS: Tensor
    sources: EncodedSources
    """The encoder output (B, S, E), its keys (B, S, K), its padding (B, S), and a fixed context (B, E)."""

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> RNNSeq2SeqState:
        return RNNSeq2SeqState(self.state_NLS.index_select(0, rows_M), self.sources.select(rows_M))


class RNNSeq2Seq(EncoderDecoder):
    """A recurrent encoder–decoder, with one context for the whole source or another one for every token.

        log p(· | y_{<t}, x) = head(tanh(W [s_t ; c_t]))
        s_t = RNN([y_{t−1} ; c_t], s_{t−1}),   s_0 = tanh(W c̄)
        c_t = h_n,   c_t = mean_i h_i,   or   c_t = Σ_i α_ti h_i with α_t = softmax_i a(s_{t−1}, h_i)

    Cho et al. 2014, §2.2 (papers.bib: cho2014learning); Sutskever et al. 2014, §2 (papers.bib:
    sutskever2014sequence); Bahdanau et al. 2015, §3 (papers.bib: bahdanau2015neural); the input of the head
    is eq. 5 of Luong et al. 2015 (papers.bib: luong2015effective). c̄ is the mean if c_t is, else h_n. Differs
    from Luong et al.: the query is s_{t−1}, as in Bahdanau et al., and c_t is an input of the network.
    As a StepModel its prompt is the source, without BOS; a missing EOS is added. It runs on torch only.
    """

    config: RNNSeq2SeqConfig
    context = None

    def __init__(self, config: RNNSeq2SeqConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, RNNSeq2SeqConfig, tokenizer)
        c = config
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.source_embed = unit_embedding(c.source_vocab_size, c.width) if c.source_vocab_size else None
        options: dict[str, Any] = {"cell": c.cell, "bidirectional": c.bidirectional, "dropout": c.dropout}
        encoder_config = RNNEncoderConfig(width=c.width, layers=c.encoder_layers, **options)
        self.encoder = encoder_config.build(self.source_embed or self.embed)
        memory_width = self.encoder.out_width
        self.score: Any = (
            None if c.context_kind in FIXED else ATTENTION_SCORES[c.context_kind](c.width, memory_width)
        )
        self.rnn = CELLS[c.cell](c.width + memory_width, c.width, c.decoder_layers, dropout=c.dropout)
        self.begin = Linear(memory_width, c.decoder_layers * self.rnn.state_width, bias=True)
        self.readout = Linear(c.width + memory_width, c.width, bias=True)
        self.dropout = nn.Dropout(c.dropout)
        self.head: Any = self.new_head(c.tied)

    def read(self, source_NS: Tensor, lengths_N: Tensor) -> tuple[Tensor, EncodedSources]:
        """s_0 (N, L, S) and the encoded sources, from sources that are padded on the right."""
        memory_NSE = self.encoder(source_NS, lengths_N)
        if self.config.context_kind == "mean":
            summary_NE = mean_context(memory_NSE, lengths_N)
        else:
            summary_NE = last_context(memory_NSE, lengths_N, self.config.bidirectional)
        begin_NLS = torch.tanh(self.begin(summary_NE)).view(len(source_NS), self.rnn.layers, -1)
        if self.score is None:
            return begin_NLS, EncodedSources.of(summary_NE, None, None, summary_NE)
        padding_NS = padding_mask(lengths_N, source_NS.shape[1], memory_NSE.dtype)
        return begin_NLS, EncodedSources.of(memory_NSE, self.score.keys(memory_NSE), padding_NS, None)

    def hidden(self, tokens_NT: Tensor, begin_NLS: Tensor, sources: EncodedSources) -> Tensor:
        """(N, T) → (N, T, D): the input of the head at every position, with teacher forcing."""
        y_NTD = self.dropout(self.embed(tokens_NT))
        fixed_NE = sources.active[3]
        if fixed_NE is None:
            s_NTD, c_NTE = self._attend_step_by_step(y_NTD, begin_NLS, sources)
        else:
            c_NTE = fixed_NE.unsqueeze(1).expand(-1, y_NTD.shape[1], -1)
            s_NTD, _ = self.rnn.read(torch.cat((y_NTD, c_NTE), dim=-1), begin_NLS)
        return self._read_out(s_NTD, c_NTE)

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.hidden(batch.inputs_NT, *self.read(*batch_sources(batch)))

    def forward(self, source_NS: Tensor, lengths_N: Tensor, tokens_NT: Tensor) -> Tensor:
        """(N, T, V): log p of every next token after each prefix."""
        return self.head(self.hidden(tokens_NT, *self.read(source_NS, lengths_N)))

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, RNNSeq2SeqState]:
        source_rows = self.source_ends.sources(prompts, self.context)
        begin_N = torch.full((len(prompts),), self.ends.bos, device=self.device)
        return self.step(RNNSeq2SeqState(*self.read(*pad_rows(source_rows, self.device))), begin_N)

    @inference_method
    def step(self, state: RNNSeq2SeqState, tokens_N: Tensor) -> tuple[Step, RNNSeq2SeqState]:
        c_NE, alpha_NS = self._context(state.state_NLS, state.sources)
        s_ND, state_NLS = self.rnn.step(torch.cat((self.embed(tokens_N), c_NE), dim=-1), state.state_NLS)
        step = predict_step(self.head, self._read_out(s_ND, c_NE), alpha_NS)
        return step, RNNSeq2SeqState(state_NLS, state.sources)

    def _context(self, state_NLS: Tensor, sources: EncodedSources) -> tuple[Tensor, Tensor | None]:
        """c_t (N, E), and α_t (N, S) or None."""
        memory_BSE, keys_BSK, padding_BS, fixed_BE = sources.active
        if fixed_BE is not None:
            return fixed_BE.repeat_interleave(len(state_NLS) // len(fixed_BE), dim=0), None
        query_BWD = self.rnn.top(state_NLS).view(len(memory_BSE), -1, self.rnn.width)
        c_BWE, alpha_BWS = attend(self.score, query_BWD, keys_BSK, memory_BSE, padding_BS)
        return c_BWE.flatten(0, 1), alpha_BWS.flatten(0, 1)

    def _attend_step_by_step(
        self, y_NTD: Tensor, state_NLS: Tensor, sources: EncodedSources
    ) -> tuple[Tensor, Tensor]:
        """s and c of every position, one after the other, because c_t needs s_{t−1}."""
        states, contexts = [], []
        for y_ND in y_NTD.unbind(1):
            c_NE, _ = self._context(state_NLS, sources)
            s_ND, state_NLS = self.rnn.step(torch.cat((y_ND, c_NE), dim=-1), state_NLS)
            states.append(s_ND)
            contexts.append(c_NE)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1)

    def _read_out(self, s: Tensor, c: Tensor) -> Tensor:
        return torch.tanh(self.readout(self.dropout(torch.cat((s, c), dim=-1))))
