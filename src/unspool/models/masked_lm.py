"""Masked language model: a bidirectional Transformer that predicts all masked positions at once.

    log p(y_i | y_visible) = head(norm(block_L(… block_1(embed(y with ⟨mask⟩ at masked positions)))))_i

As BERT (Devlin et al. 2019, §3.1, papers.bib: devlin2019bert); as a generator Nie et al. 2025, §2
(papers.bib: nie2025large). Texts are followed by more EOS tokens, so the model learns where texts end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from unspool.interfaces import AttentionStack
from unspool.models.model_config import VocabularyOptions
from unspool.models.sequence_model import SequenceModel, inference_method, unit_embedding
from unspool.models.sources import BoundaryTokens, pad_rows
from unspool.models.transformer_shape import TransformerShape, TransformerStack, attention_padding
from unspool.nn.positions import ADDED_POSITIONS

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import TokenizerLike


def check_added_positions(config: TransformerShape) -> None:
    """Raise ValueError unless positions are added to embeddings; masked positions look alike otherwise."""
    if config.positions not in ADDED_POSITIONS:
        raise ValueError(
            f"positions={config.positions!r} cannot distinguish masked positions: choose "
            f"{' or '.join(map(repr, ADDED_POSITIONS))}"
        )


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(TransformerShape, VocabularyOptions):
    """Settings of a masked language model."""

    layers: int
    positions: str = "sinusoidal"
    """"sinusoidal" or "learned", which are added to embeddings and distinguish masked positions."""
    eos: int | None = None
    """The token that ends a text; None is the text's own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_added_positions(self)

    def build(self, tokenizer: TokenizerLike | None = None) -> MaskedLM:
        return MaskedLM(self, tokenizer)


class MaskedModel(SequenceModel, TransformerStack):
    """Base class of models that fill masked positions instead of generating token by token."""

    mask: nn.Parameter

    @property
    def context(self) -> int | None:
        limit: int | None = self.config.context
        return limit

    @property
    def reads_bos(self) -> bool:
        """Texts are filled without BOS."""
        return False

    @property
    def infilling(self) -> Any:
        return self

    @property
    def attention_reading(self) -> Any:
        return self

    def embedded(self, texts_NT: Tensor) -> Tensor:
        """(N, T, D): the embedding of every token, and of the mask at masked positions."""
        hidden_NT = texts_NT == self.vocab_size
        shown_NTD = self.embed(texts_NT.masked_fill(hidden_NT, 0))
        return torch.where(hidden_NT[..., None], self.mask.to(shown_NTD.dtype), shown_NTD)

    def hidden_for(self, batch: Batch) -> Tensor:
        hidden_NTD: Tensor = self.read_hidden(batch)[0]
        return hidden_NTD

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        stacks: list[AttentionStack] = []
        hidden_NTD, _ = self.read_hidden(batch, stacks)
        return hidden_NTD, tuple(stacks)

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the head, and log p of every length or None."""
        raise NotImplementedError

    def start(self, prompts: Sequence[Sequence[int]]) -> NoReturn:
        del prompts
        raise ValueError(
            f"{type(self).__name__} is a masked model and does not generate token by token: decode it with "
            "MaskPredict() or MaskedDiffusion()"
        )

    def step(self, state: Any, tokens_N: Tensor) -> NoReturn:
        del state, tokens_N
        self.start([])


class MaskedLM(MaskedModel):
    """A masked language model."""

    config: MaskedLMConfig

    def __init__(self, config: MaskedLMConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__(config, MaskedLMConfig, tokenizer)
        c = config
        self.ends = BoundaryTokens.of(None, c.eos, tokenizer, c.vocab_size)
        self.embed = unit_embedding(c.vocab_size, c.width)
        self.mask = nn.Parameter(torch.randn(c.width) * c.width**-0.5)
        self.init_stack(c, c.layers, causal=False)
        self.head: Any = self.new_head(c.tied)

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        return ((self.config.layers, self.config.heads),)

    def hidden(self, texts_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, T, D): the input of the head at every position."""
        x_NTD = self.embedded(texts_NT)
        mask = attention_padding(lengths_N, x_NTD)
        return self.run_blocks(x_NTD, mask, [(None, attentions)] * len(self.blocks))

    def read_hidden(
        self, batch: Batch, stacks: list[AttentionStack] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The input of the head; lengths are not predicted."""
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
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int], most: int
    ) -> list[list[tuple[int, float]]]:
        """The limits themselves: the model predicts the end by EOS."""
        del prompts, most
        return [[(limit, 0.0)] for limit in limits]

    @inference_method
    def fill(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p at every position of each text after its prompt."""
        stripped = [self._strip_bos(prompt) for prompt in prompts]
        rows = [[*prompt, *text] for prompt, text in zip(stripped, texts, strict=True)]
        logp_NTV = self.head(self.hidden(*pad_rows(rows, self.device)))
        spans = zip(logp_NTV, stripped, rows, strict=True)
        return [logp_TV[len(begin) : len(row)] for logp_TV, begin, row in spans]

    def _strip_bos(self, prompt: Sequence[int]) -> Sequence[int]:
        """A prompt without BOS, which no text has in training."""
        bos = None if self.tokenizer is None else self.tokenizer.bos_id
        return prompt[1:] if bos is not None and prompt[0] == bos else prompt
