"""Transformers encoder–decoders as StepModels; sources are encoded once.

The prompt is the source. EOS is appended if missing; a leading BOS (BART) is written by the tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.heads.softmax import log_softmax
from unspool.integrations.huggingface.causal_model import (
    TransformersModel,
    boundary_tokens,
    step_at_last_position,
    steps_at_all_positions,
)
from unspool.integrations.loading import TRANSFORMERS
from unspool.interfaces import Step
from unspool.models.sequence_model import inference_method
from unspool.models.sources import pad_rows


@dataclass(frozen=True)
class EncoderOutput:
    """Encoder hidden states and padding mask of a batch of sources."""

    memory_BSD: Tensor
    mask_BS: Tensor

    def select(self, rows: Tensor) -> EncoderOutput:
        return EncoderOutput(self.memory_BSD.index_select(0, rows), self.mask_BS.index_select(0, rows))


@dataclass
class EncoderDecoderState:
    """The self-attention and cross-attention cache, and the encoded sources."""

    cache: Any
    sources: EncoderOutput
    source_N: Tensor
    """The source index of each row."""

    @torch.inference_mode()
    def select(self, rows_M: Tensor) -> EncoderDecoderState:
        """The cross-attention cache moves only if sources change."""
        self.cache.self_attention_cache.reorder_cache(rows_M)
        source_M = self.source_N.index_select(0, rows_M)
        if torch.equal(source_M, self.source_N):
            return self
        self.cache.cross_attention_cache.reorder_cache(rows_M)
        return EncoderDecoderState(self.cache, self.sources.select(rows_M), source_M)


class TransformersSeq2Seq(TransformersModel):
    """An encoder–decoder."""

    is_encoder_decoder = True

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__(model, tokenizer)
        self.ends = boundary_tokens(model, tokenizer)
        self.source_ends = self.ends

    def forward(self, source_NS: Tensor, lengths_N: Tensor, tokens_NT: Tensor) -> Tensor:
        """(N, T, V): log p of every next token after each prefix, in one parallel pass."""
        mask_NS = torch.arange(source_NS.shape[1], device=self.device) < lengths_N[:, None]
        out = self.model(
            input_ids=source_NS,
            attention_mask=mask_NS.long(),
            decoder_input_ids=tokens_NT,
            use_cache=False,
            return_dict=True,
        )
        return log_softmax(out.logits)

    @inference_method
    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, EncoderDecoderState]:
        library = TRANSFORMERS.require("this model")
        cache = library.EncoderDecoderCache(library.DynamicCache(), library.DynamicCache())
        state = EncoderDecoderState(
            cache, self.encode(prompts), torch.arange(len(prompts), device=self.device)
        )
        prefix_NT = self.target_prefix(prompts)
        if prefix_NT.shape[1] > 1:
            self._read(prefix_NT[:, :-1], state)
        return self.step(state, prefix_NT[:, -1])

    def target_prefix(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """(N, T): the decoder input before the first target token."""
        return torch.full((len(prompts), 1), self.ends.bos, device=self.device)

    def encode(self, prompts: Sequence[Sequence[int]]) -> EncoderOutput:
        source_NS, lengths_N = pad_rows(self.ends.sources(prompts, self.context), self.device)
        mask_NS = torch.arange(source_NS.shape[1], device=self.device) < lengths_N[:, None]
        out = self.model.get_encoder()(input_ids=source_NS, attention_mask=mask_NS.long(), return_dict=True)
        return EncoderOutput(out.last_hidden_state, mask_NS)

    @inference_method
    def step(self, state: EncoderDecoderState, tokens_N: Tensor) -> tuple[Step, EncoderDecoderState]:
        out, hidden_NTD = self._read(tokens_N[:, None], state)
        weights = getattr(out, "cross_attentions", None)
        attention = weights[-1].mean(1)[:, -1] if weights else None
        return replace(step_at_last_position(out, hidden_NTD), attention=attention), state

    @inference_method
    def extend(self, state: EncoderDecoderState, tokens_NT: Tensor) -> tuple[Step, EncoderDecoderState]:
        return steps_at_all_positions(*self._read(tokens_NT, state)), state

    @torch.inference_mode()
    def rewind(self, state: EncoderDecoderState, tokens: int) -> EncoderDecoderState:
        state.cache.self_attention_cache.crop(-tokens)
        return state

    def _read(self, tokens_NT: Tensor, state: EncoderDecoderState) -> tuple[Any, Tensor | None]:
        library = TRANSFORMERS.require("this model")
        # Only eager attention returns weights: load with attn_implementation="eager".
        has_weights = self.config._attn_implementation == "eager"
        return self.run(
            decoder_input_ids=tokens_NT,
            # Every family accepts this class; NLLB-MoE reads its router_logits.
            encoder_outputs=library.modeling_outputs.MoEModelOutput(state.sources.memory_BSD),
            attention_mask=state.sources.mask_BS.long(),
            past_key_values=state.cache,
            use_cache=True,
            **({"output_attentions": True} if has_weights else {}),
        )

    @inference_method
    def _probe(self) -> tuple[Tensor, Tensor] | None:
        two_21 = torch.tensor([[0], [1]], device=self.device)
        out, hidden_NTD = self.run(input_ids=two_21, decoder_input_ids=two_21, use_cache=False)
        return None if hidden_NTD is None else (out.logits[:, -1], hidden_NTD[:, -1])
