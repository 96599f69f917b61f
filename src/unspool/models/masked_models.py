"""Masked models, which fill masked positions instead of generating token by token.

`MaskedLM` predicts all masked positions of a text at once; `MaskedSeq2Seq` those of a target, and its length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor, nn

from unspool.arguments import integer
from unspool.data.batch import Batch
from unspool.interfaces import AttentionStack, TokenizerLike
from unspool.models.encoders import TransformerEncoder
from unspool.models.model_config import PairOptions, VocabularyOptions
from unspool.models.sequence_model import EncoderDecoder, SequenceModel, inference_method, unit_embedding
from unspool.models.sources import BoundaryTokens, batch_sources, pad_rows
from unspool.models.transformer_seq2seq import embedding
from unspool.models.transformer_shape import TransformerModel, TransformerShape, attention_padding
from unspool.nn.positions import ADDED_POSITIONS
from unspool.nn.transformer import EncoderOutput


@dataclass(frozen=True, kw_only=True)
class MaskedShape(TransformerShape):
    """Settings of Transformer blocks that read masked positions, which only added positions distinguish."""

    POSITIONS: ClassVar[tuple[str, ...]] = tuple(ADDED_POSITIONS)

    positions: str = "sinusoidal"
    """"sinusoidal" or "learned", which are added to embeddings and distinguish masked positions."""


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(MaskedShape, VocabularyOptions):
    """Settings of a masked language model."""

    layers: int = integer(at_least=1)
    eos: int | None = None
    """The token that ends a text; None means that of the tokenizer."""

    def build(self, tokenizer: TokenizerLike | None = None) -> MaskedLM:
        return MaskedLM(self, tokenizer)


class MaskedModel(SequenceModel, TransformerModel):
    """Base class of models that fill masked positions instead of generating token by token."""

    mask: nn.Parameter
    reads_bos = False

    @property
    def infilling(self) -> Any:
        return self

    def embedded(self, texts_NT: Tensor) -> Tensor:
        """(N, T, D): the embedding of every token, and of the mask at masked positions."""
        hidden_NT = texts_NT == self.vocab_size
        shown_NTD = self.embed(texts_NT.masked_fill(hidden_NT, 0))
        return torch.where(hidden_NT[..., None], self.mask.to(shown_NTD.dtype), shown_NTD)

    def hidden_for(self, batch: Batch) -> Tensor:
        return self.read_hidden(batch)[0]

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        stacks: list[AttentionStack] = []
        hidden_NTD, _ = self.read_hidden(batch, stacks)
        return hidden_NTD, tuple(stacks)

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the head, and log p of every length or None."""
        raise NotImplementedError

    def start(self, prompts: Sequence[Sequence[int]]) -> NoReturn:  # noqa: ARG002
        raise ValueError(
            f"{type(self).__name__} is a masked model and does not generate token by token: decode it with "
            "MaskPredict() or MaskedDiffusion()"
        )

    def step(self, state: Any, tokens_N: Tensor) -> NoReturn:  # noqa: ARG002
        self.start([])


class MaskedLM(MaskedModel):
    """A masked language model.

        log p(y_i | y_visible) = head(norm(block_L(… block_1(embed(y with ⟨mask⟩ at masked positions)))))_i

    As BERT (Devlin et al. 2019, §3.1, papers.bib: devlin2019bert); as a generator Nie et al. 2025, §2
    (papers.bib: nie2025large). Texts are followed by more EOS tokens, so the model learns where texts end.
    """

    config: MaskedLMConfig

    def __init__(self, config: MaskedLMConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, MaskedLMConfig, tokenizer)
        c = config
        self.ends = BoundaryTokens.of(None, c.eos, tokenizer, c.vocab_size)
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.mask = nn.Parameter(torch.randn(c.width) * c.width**-0.5)
        self.init_stack(c, c.layers, causal=False)
        self.head: Any = self.new_head(c.tied)

    def hidden(self, texts_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, T, D): the input of the head at every position."""
        x_NTD = self.embedded(texts_NT)
        mask = attention_padding(lengths_N, x_NTD)
        return self.run_blocks(x_NTD, mask, [(None, attentions)] * len(self.blocks))

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        attentions: list[Tensor] = []
        hidden_NTD = self.hidden(batch.inputs_NT, batch.lengths_N, None if stacks is None else attentions)
        if stacks is not None:
            stacks.append(AttentionStack(tuple(attentions), batch.lengths_N))
        return hidden_NTD, None

    def whole_texts(self, batch: Batch, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
        """Texts up to their EOS, and EOS behind it: a random number, up to the length of the text."""
        max_extra_N = batch.lengths_N
        if self.context is not None:
            max_extra_N = torch.minimum(max_extra_N, self.context - max_extra_N).clamp(min=0)
        lengths_N = batch.lengths_N + (uniform_N * (max_extra_N + 1)).long()
        T, longest = batch.targets_NU.shape[1], int(lengths_N.max())
        texts_NT = torch.nn.functional.pad(batch.targets_NU, (0, max(0, longest - T)))[:, :longest]
        is_after_end_NT = torch.arange(longest, device=texts_NT.device) >= batch.lengths_N[:, None]
        return texts_NT.masked_fill(is_after_end_NT, min(self.ends.eos)), lengths_N

    def lengths(
        self,
        prompts: Sequence[Sequence[int]],  # noqa: ARG002
        limits: Sequence[int],
        most: int,  # noqa: ARG002
    ) -> list[list[tuple[int, float]]]:
        """The limits themselves: the model predicts the end by EOS."""
        return [[(limit, 0.0)] for limit in limits]

    @inference_method
    def fill(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p at every position of each text after its prompt."""
        bos = None if self.tokenizer is None else self.tokenizer.bos_id  # which no text has in training
        stripped = [prompt[1:] if bos is not None and prompt[0] == bos else prompt for prompt in prompts]
        rows = [[*prompt, *text] for prompt, text in zip(stripped, texts, strict=True)]
        logp_NTV = self.head(self.hidden(*pad_rows(rows, self.device)))
        spans = zip(logp_NTV, stripped, rows, strict=True)
        return [logp_TV[len(begin) : len(row)] for logp_TV, begin, row in spans]


@dataclass(frozen=True, kw_only=True)
class MaskedSeq2SeqConfig(MaskedShape, PairOptions):
    """Settings of a masked encoder–decoder."""

    encoder_layers: int = integer(at_least=1)
    decoder_layers: int = integer(at_least=1)
    longest: int = integer(128, at_least=1)
    """The longest target that it can predict, including EOS."""

    def build(self, tokenizer: TokenizerLike | None = None) -> MaskedSeq2Seq:
        return MaskedSeq2Seq(self, tokenizer)


class MaskedSeq2Seq(EncoderDecoder, MaskedModel):
    """A masked encoder–decoder (CMLM): predicts the masked positions of a target and its length.

        log p(y_i | y_shown, x) = head(norm(block_L(… block_1(√D·embed(y with ⟨mask⟩ at masked ones) + p))))_i
        log p(T | x)            = log_softmax(W · mean_s encoder(x)_s)_T

    Ghazvininejad et al. 2019, §2 and §3.1 (papers.bib: ghazvininejad2019mask).
    Differs from the paper: the length is read from the mean over the source, not from a special token.
    T counts the EOS, which is a token as any other.
    """

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

    def hidden(
        self,
        texts_NT: Tensor,
        lengths_N: Tensor,
        memory_NSD: Tensor,
        sources_N: Tensor,
        attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T) → (N, T, D): the input of the head at every position."""
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

    def whole_texts(self, batch: Batch, room_N: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
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
        """log p at every position of each text, a translation of its prompt."""
        source_NS, sources_N = self._read(prompts)
        texts_NT, lengths_N = pad_rows([list(text) for text in texts], self.device)
        memory_NSD = self.encoder(source_NS, sources_N)
        logp_NTV = self.head(self.hidden(texts_NT, lengths_N, memory_NSD, sources_N))
        return [logp_TV[: len(text)] for logp_TV, text in zip(logp_NTV, texts, strict=True)]

    def _read(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        return pad_rows(self.source_ends.sources(prompts, self.context), self.device)
