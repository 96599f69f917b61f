"""Masked encoder–decoder (CMLM): predicts the masked positions of a target and its length.

    log p(y_i | y_shown, x) = head(norm(block_L(… block_1(√D · embed(y with ⟨mask⟩ at masked ones) + p))))_i
    log p(T | x)            = log_softmax(W · mean_s encoder(x)_s)_T

Ghazvininejad et al. 2019, §2 and §3.1 (papers.bib: ghazvininejad2019mask).
Differs from the paper: the length is read from the mean over the source, not from a special token.
T counts the EOS, which is a token as any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unspool.interfaces import AttentionStack
from unspool.models.encoders import TransformerEncoder
from unspool.models.masked_lm import MaskedModel, check_added_positions
from unspool.models.model_config import PairOptions
from unspool.models.sequence_model import EncoderDecoder, inference_method
from unspool.models.sources import batch_sources, pad_rows
from unspool.models.transformer_seq2seq import embedding
from unspool.models.transformer_shape import TransformerShape, attention_padding
from unspool.nn.transformer import EncoderOutput

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True, kw_only=True)
class MaskedSeq2SeqConfig(TransformerShape, PairOptions):
    """Settings of a masked encoder–decoder."""

    encoder_layers: int
    decoder_layers: int
    positions: str = "sinusoidal"
    """"sinusoidal" or "learned", which are added to embeddings and distinguish masked positions."""
    longest: int = 128
    """The longest target that it can predict, including EOS."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_added_positions(self)

    def build(self, tokenizer: TokenizerLike | None = None) -> MaskedSeq2Seq:
        return MaskedSeq2Seq(self, tokenizer)


class MaskedSeq2Seq(EncoderDecoder, MaskedModel):
    """An encoder–decoder that predicts the target length and fills masked positions."""

    config: MaskedSeq2SeqConfig

    def __init__(self, config: MaskedSeq2SeqConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, MaskedSeq2SeqConfig, tokenizer)
        c = config
        self.embed = embedding(c.vocab_size, c.width)
        self.mask = nn.Parameter(torch.randn(c.width) * c.width**-0.5)
        self.source_embed = embedding(c.source_vocab_size, c.width) if c.source_vocab_size else None
        self.scale = math.sqrt(c.width)
        self.encoder = TransformerEncoder(c, c.encoder_layers, self.source_embed or self.embed)
        self.init_stack(c, c.decoder_layers, causal=False, cross=True)
        self.length_head = nn.Linear(c.width, c.longest)
        self.head: Any = self.new_head(c.tied)

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        c = self.config
        return ((c.encoder_layers, c.heads), (c.decoder_layers, c.heads))

    def hidden(
        self,
        texts_NT: Tensor,
        lengths_N: Tensor,
        memory_NSD: Tensor,
        sources_N: Tensor,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T) → (N, T, D): what the head reads at every place."""
        source = EncoderOutput(memory_NSD, attention_padding(sources_N, memory_NSD))
        x_NTD = self.embedded(texts_NT) * self.scale
        mask = attention_padding(lengths_N, x_NTD)
        return self.run_blocks(x_NTD, mask, [(None, attentions, source)] * len(self.blocks))

    def length_logp(self, memory_NSD: Tensor, sources_N: Tensor) -> Tensor:
        """(N, L): log p of a length of 1, 2, … L."""
        return torch.log_softmax(self.length_head(self.encoder.summary(memory_NSD, sources_N)), dim=-1)

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the head, and log p of every length."""
        source_NS, sources_N = batch_sources(batch)
        if int(batch.lengths_N.max()) > self.config.longest:
            raise ValueError(
                f"a target has {int(batch.lengths_N.max())} tokens, but model.longest is "
                f"{self.config.longest}: raise it, or cut targets (batches.max_length)"
            )
        encoder: list[Tensor] = []
        decoder: list[Tensor] = []
        memory_NSD = self.encoder(source_NS, sources_N, None if stacks is None else encoder)
        hidden_NTD = self.hidden(
            batch.inputs_NT, batch.lengths_N, memory_NSD, sources_N, None if stacks is None else decoder
        )
        if stacks is not None:
            stacks.append(AttentionStack(tuple(encoder), sources_N))
            stacks.append(AttentionStack(tuple(decoder), batch.lengths_N))
        return hidden_NTD, self.length_logp(memory_NSD, sources_N)

    def whole_texts(self, batch: Batch, room_N: Tensor) -> tuple[Tensor, Tensor]:
        """Targets up to their EOS."""
        del room_N
        return batch.targets_NU, batch.lengths_N

    @inference_method
    def lengths(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], most: int
    ) -> list[list[tuple[int, float]]]:
        """The most probable lengths, the best first."""
        source_NS, sources_N = self._read(prompts)
        logp_NL = self.length_logp(self.encoder(source_NS, sources_N), sources_N)
        lengths = []
        for logp_L, limit in zip(logp_NL, limits, strict=True):
            best = logp_L[:limit].topk(min(most, limit, len(logp_L)))
            lengths.append([(at + 1, p) for p, at in zip(*map(Tensor.tolist, best), strict=True)])
        return lengths

    @inference_method
    def fill(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p at every place of each text, a translation of its prompt."""
        source_NS, sources_N = self._read(prompts)
        texts_NT, lengths_N = pad_rows([list(text) for text in texts], self.device)
        memory_NSD = self.encoder(source_NS, sources_N)
        logp_NTV = self.head(self.hidden(texts_NT, lengths_N, memory_NSD, sources_N))
        return [logp_TV[: len(text)] for logp_TV, text in zip(logp_NTV, texts, strict=True)]

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        return pad_rows(self.source_ends.sources(prompts, self.context), self.device)
