"""Transformer encoder–decoder.

    p(y | x) = Π_t p(y_t | y_{<t}, x)
    log p(· | y_{<t}, x) = head(norm(block_L(… block_1(√D · embed(y_{<t}) + p))))

Every decoder block attends to its past, then to the encoder output for x. Vaswani et al. 2017, §3
(papers.bib: vaswani2017attention). Both sides share one vocabulary and embedding, unless
`source_vocab_size` is set.
Differs from the paper: the entries of √D · embed begin with standard deviation s = min(½, 8/√D) instead of 1.
At first the last norm scales mostly √D · embed(y_{t−1}) to length √D. If the embedding is also the output
matrix, the token just read therefore has a logit of up to s·√D. With s = 1 the loss starts there (15 at width
256, 31 at width 1,024) instead of near ln V, and training stays behind for a long time.
As a StepModel its prompt is the source, without BOS; a missing EOS is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.data.batch import Batch
from unspool.engine.compiled_state import CompiledJoining, CompiledState, translation_state
from unspool.engine.engine_choice import module_spec
from unspool.heads.softmax import predict_step
from unspool.interfaces import AttentionStack, Step, TokenizerLike
from unspool.models.encoders import TransformerEncoder
from unspool.models.model_config import PairOptions
from unspool.models.sequence_model import EncoderDecoder, inference_method
from unspool.models.sources import EncodedSources, batch_sources, pad_rows
from unspool.models.transformer_lm import TransformerState
from unspool.models.transformer_shape import TransformerModel, TransformerShape, attention_padding
from unspool.nn.attention import KVCache
from unspool.nn.positions import RelativePositions
from unspool.nn.transformer import EncoderOutput

CACHE_RESERVE = 32
"""Columns reserved for new tokens when a source is read."""
MAX_EMBED_STD, MAX_INITIAL_LOGIT = 0.5, 8.0
"""Limits of s and of s·√D, the largest logit at the beginning."""


@dataclass(frozen=True, kw_only=True)
class TransformerSeq2SeqConfig(TransformerShape, PairOptions):
    """Settings of a Transformer encoder–decoder."""

    POSITIONS: ClassVar[tuple[str, ...]] = (*TransformerShape.POSITIONS, "relative")

    encoder_layers: int = integer(at_least=1)
    decoder_layers: int = integer(at_least=1)
    source_bos: bool = False
    """Keep a BOS at the start of a source, as BART's tokenizer writes it."""
    embed_scale: float | None = number(None, above=0)
    """The factor of embeddings; None means √D."""
    embed_norm: bool = False
    """Normalise embeddings with positions, on both sides (BART)."""
    relative_buckets: int = integer(32, at_least=4)
    """Buckets of distances with positions "relative" (T5); each has a bias per head."""
    relative_distance: int = integer(128, at_least=1)
    """The distance from which on all share the last bucket."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions != "relative":
            return
        if self.relative_distance <= self.relative_buckets // 2:
            raise ValueError(
                f"relative_distance={self.relative_distance} must be more than half of "
                f"relative_buckets={self.relative_buckets}"
            )
        if self.key_value_heads != self.heads or self.attention != "query_key":
            raise ValueError(
                "positions='relative' is for attention = 'query_key' with keys of their own for every head: "
                "leave attention and kv_heads out"
            )

    def relative(self, *, causal: bool) -> RelativePositions | None:
        if self.positions != "relative":
            return None
        return RelativePositions(self.heads, self.relative_buckets, self.relative_distance, causal=causal)

    def new_embed_norm(self) -> nn.Module | None:
        return self.new_norm() if self.embed_norm else None

    def build(self, tokenizer: TokenizerLike | None = None) -> TransformerSeq2Seq:
        return TransformerSeq2Seq(self, tokenizer)


@dataclass
class TransformerSeq2SeqState:
    """The KV cache of the decoder and the encoded sources."""

    past: TransformerState
    sources: EncodedSources
    """Padding (B, 1, 1, S) last, before it the keys and the values of every layer."""

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> TransformerSeq2SeqState:
        return TransformerSeq2SeqState(self.past.select(rows_M), self.sources.select(rows_M))


TranslationState = TransformerSeq2SeqState | CompiledState
"""The decoding state of either engine."""


def embedding(vocab_size: int, width: int, scale: float | None = None) -> nn.Embedding:
    """Random vectors whose entries, times the scale (None: √D), have the standard deviation s."""
    embed = nn.Embedding(vocab_size, width)
    spread = min(MAX_EMBED_STD, MAX_INITIAL_LOGIT * width**-0.5)
    nn.init.normal_(embed.weight, std=spread * (width**-0.5 if scale is None else 1 / scale))
    return embed


class TransformerSeq2Seq(EncoderDecoder, TransformerModel):
    """An encoder–decoder Transformer."""

    config: TransformerSeq2SeqConfig

    def __init__(self, config: TransformerSeq2SeqConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, TransformerSeq2SeqConfig, tokenizer)
        c = config
        self.source_ends = replace(self.source_ends, source_bos=c.source_bos)
        source_vocab_size = c.source_vocab_size
        self.embed = embedding(c.vocab_size, c.width, c.embed_scale)
        self.source_embed = (
            embedding(source_vocab_size, c.width, c.embed_scale) if source_vocab_size else None
        )
        self.scale = math.sqrt(c.width) if c.embed_scale is None else float(c.embed_scale)
        self.encoder = TransformerEncoder(c, c.encoder_layers, self.source_embed or self.embed, self.scale)
        self.init_stack(c, c.decoder_layers, causal=True, cross=True)
        self.head: Any = self.new_head(c.tied)
        self.built = module_spec(self)

    @property
    def rewindable(self) -> Self:
        return self

    @property
    def joining(self) -> CompiledJoining | None:
        return CompiledJoining() if self.engine == "compiled" else None

    @property
    def source_attention_reading(self) -> Self:
        return self

    def read(self, source_NS: Tensor, lengths_N: Tensor) -> EncodedSources:
        """Encode sources, and compute keys and values of every layer once, for all steps of decoding."""
        memory_NSD, padding_N11S = self.encode(source_NS, lengths_N)
        kv = [tensor for block in self.blocks for tensor in block.cross_attention.keys_values(memory_NSD)]
        return EncodedSources.of(*(tensor.contiguous() for tensor in kv), padding_N11S)

    def encode(
        self, source_NS: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None
    ) -> EncoderOutput:
        """Encode sources that are padded on the right, for one pass over whole targets."""
        memory_NSD = self.encoder(source_NS, lengths_N, attentions)
        return EncoderOutput(memory_NSD, attention_padding(lengths_N, memory_NSD))

    def hidden(
        self,
        tokens_NT: Tensor,
        sources: EncodedSources | EncoderOutput,
        past: TransformerState | None = None,
        attentions: list[Tensor] | None = None,
        cross_attentions: list[Tensor] | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """(N, T) → (N, T, D): what the head reads at every position, after the tokens in `past`.

        The attention weights of every layer are appended to `attentions` and `cross_attentions`, or with
        `last_only` the cross-attention of the last layer.
        """
        x_NTD = self.embed(tokens_NT) * self.scale
        # Relative positions mask later tokens themselves.
        mask = None if past is None or self.relative is not None else past.mask(tokens_NT.shape[1])
        arguments = []
        for layer in range(len(self.blocks)):
            if isinstance(sources, EncoderOutput):
                source: Any = sources
            else:  # keys, values and padding
                source = (*sources.active[2 * layer : 2 * layer + 2], sources.active[-1])
            is_skipped = last_only and layer < len(self.blocks) - 1
            cache = None if past is None else past.layers[layer]
            arguments.append((cache, attentions, source, None if is_skipped else cross_attentions))
        return self.run_blocks(x_NTD, mask, arguments, 0 if past is None else past.length)

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.hidden(batch.inputs_NT, self.encode(*batch_sources(batch)))

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        source_NS, source_lengths_N = batch_sources(batch)
        encoder: list[Tensor] = []
        decoder: list[Tensor] = []
        sources = self.encode(source_NS, source_lengths_N, encoder)
        hidden_NTD = self.hidden(batch.inputs_NT, sources, attentions=decoder)
        return hidden_NTD, (
            AttentionStack(tuple(encoder), source_lengths_N),
            AttentionStack(tuple(decoder), batch.lengths_N),
        )

    def read_source_attention(self, batch: Batch) -> AttentionStack:
        cross_attentions: list[Tensor] = []
        self.hidden(batch.inputs_NT, self.encode(*batch_sources(batch)), cross_attentions=cross_attentions)
        return AttentionStack(tuple(cross_attentions), batch.lengths_N)

    def forward(self, source_NS: Tensor, lengths_N: Tensor, tokens_NT: Tensor) -> Tensor:
        """(N, T, V): log p of every next token after each prefix, in one parallel pass."""
        return self.head(self.hidden(tokens_NT, self.encode(source_NS, lengths_N)))

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TranslationState]:
        source_rows = self.source_ends.sources(prompts, self.context)
        if self.engine == "compiled":
            return self.step(translation_state(self, source_rows), torch.full((len(prompts),), self.ends.bos))
        sources = self.read(*pad_rows(source_rows, self.device))
        rows_N = torch.arange(len(prompts), device=self.device)
        layers = [KVCache(CACHE_RESERVE) for _ in self.blocks]
        past = TransformerState(layers, torch.zeros_like(rows_N), False, rows_N, 0)
        begin_N = torch.full((len(prompts),), self.ends.bos, device=self.device)
        return self.step(TransformerSeq2SeqState(past, sources), begin_N)

    @inference_method
    def step(self, state: TranslationState, tokens_N: Tensor) -> tuple[Step, TranslationState]:
        if isinstance(state, CompiledState):
            return state.step(tokens_N), state
        weights: list[Tensor] = []
        hidden_NTD = self.hidden(
            tokens_N[:, None], state.sources, state.past, cross_attentions=weights, last_only=True
        )
        return predict_step(self.head, hidden_NTD[:, 0], weights[0].mean(1)[:, 0]), state

    @inference_method
    def extend(self, state: TranslationState, tokens_NT: Tensor) -> tuple[Step, TranslationState]:
        if isinstance(state, CompiledState):
            return state.extend(tokens_NT), state
        hidden_NTD = self.hidden(tokens_NT, state.sources, state.past)
        return predict_step(self.head, hidden_NTD.flatten(0, 1)), state

    def rewind(self, state: TranslationState, tokens: int) -> TranslationState:
        if isinstance(state, CompiledState):
            return state.rewind(tokens)
        state.past.truncate(state.past.length - tokens)
        return state
