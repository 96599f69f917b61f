"""Settings that Transformer encoders and decoders share, and their building blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number, one_of
from unspool.models.model_config import ModelSettings
from unspool.nn.attention import CrossAttention, QueryKeyNorm, SelfAttention
from unspool.nn.keyless_attention import KeylessAttention, check_no_rotary
from unspool.nn.norms import NORMS, NormPlace
from unspool.nn.positions import (
    ADDED_POSITIONS,
    RelativePositions,
    Rotary,
    RotaryScaling,
    YarnScaling,
    add_positions,
)
from unspool.nn.rnn import padding_mask
from unspool.nn.transformer import Block, FeedForward

ATTENTIONS: dict[str, type[SelfAttention] | type[KeylessAttention]] = {
    "keyless": KeylessAttention,
    "query_key": SelfAttention,
}


@dataclass(frozen=True, kw_only=True)
class TransformerShape(ModelSettings):
    """Settings of Transformer blocks."""

    POSITIONS: ClassVar[tuple[str, ...]] = (*ADDED_POSITIONS, "rotary", "none")
    """The supported position encodings."""

    width: int = integer(at_least=1)
    heads: int = integer(at_least=1)
    inner_width: int = integer(at_least=1)
    """The inner width of the feed-forward network."""
    kv_heads: int | None = integer(None, at_least=1)
    """Key–value heads, each shared by a group of query heads; None means as many as `heads`."""
    head_width: int | None = integer(None, at_least=1)
    """The width of a head; None means width / heads."""
    norm: Literal["layer", "rms"] = "rms"
    norm_eps: float = number(1e-5, at_least=0, below=1)
    norm_place: NormPlace = "pre"
    positions: str = "rotary"
    """"rotary", "sinusoidal", "sinusoidal_halves" (Marian's order), "learned" (needs `context`) or "none"."""
    rotary_base: float = number(10000.0, above=0)
    rotary_scaling: RotaryScaling | None = None
    """Llama 3's scaling of rotary positions to a longer context."""
    rotary_yarn: YarnScaling | None = None
    """YaRN scaling of rotary positions."""
    rotary_factor: float = number(1.0, above=0)
    """The divisor of all rotary frequencies."""
    rotary_width: int | None = integer(None, at_least=1)
    """The number of rotated dimensions of a head; None means all."""
    qk_norm: Literal["head", "none", "whole"] = "none"
    """QK-norm: "none", per "head" (Qwen 3, Gemma 3) or over the "whole" (OLMo 2)."""
    attention_cap: float | None = number(None, above=0)
    """Soft cap of attention scores (Gemma 2)."""
    context: int | None = integer(None, at_least=1)
    """The maximum number of tokens; None means no limit. In an encoder–decoder it applies to each side
    (a source with EOS, a target with BOS)."""
    activation: Literal["geglu", "gelu", "gelu_tanh", "relu", "silu", "swiglu"] = "swiglu"
    bias: bool = False
    """A bias in every projection."""
    qkv_bias: bool = False
    """A bias in the query, key and value projections only."""
    dropout: float = number(0.0, at_least=0, below=1)
    attention: Literal["keyless", "query_key"] = "query_key"
    """"query_key" attention, or "keyless" with one matrix per head (not with rotary positions)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(f"{type(self).__name__}.positions", self.positions, self.POSITIONS)
        if self.head_width is None and self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}, or set head_width")
        if self.heads % self.key_value_heads:
            raise ValueError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")
        if self.attention == "keyless":
            check_no_rotary(self.positions == "rotary")
            if self.qk_norm != "none" or self.attention_cap is not None:
                raise ValueError("qk_norm and attention_cap need attention = 'query_key': remove them")
        turned = self.each_width if self.rotary_width is None else self.rotary_width
        if self.positions == "rotary" and (turned % 2 or turned > self.each_width):
            raise ValueError(
                f"rotary positions need an even head width, not {turned}"
                + ("" if turned <= self.each_width else f", and no more than the {self.each_width} of a head")
            )
        scaling = self.rotary_scaling
        if scaling is not None and scaling.high_freq_factor <= scaling.low_freq_factor:
            raise ValueError(
                f"high_freq_factor {scaling.high_freq_factor:g} must be above "
                f"low_freq_factor {scaling.low_freq_factor:g}"
            )
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        if self.positions == "learned" and self.context is None:
            raise ValueError("positions='learned' needs context: give it a value")

    @property
    def each_width(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    def rotary(self) -> Rotary | None:
        if self.positions != "rotary":
            return None
        scaling = self.rotary_scaling or self.rotary_yarn
        return Rotary(self.each_width, self.rotary_base, scaling, self.rotary_width, self.rotary_factor)

    def relative(self, *, causal: bool) -> RelativePositions | None:  # noqa: ARG002
        return None

    def new_embed_norm(self) -> nn.Module | None:
        """The norm of embeddings with positions (BART), or None."""
        return None

    def new_norm(self) -> nn.Module:
        return NORMS[self.norm](self.width, self.norm_eps)

    def block(self, *, causal: bool, cross: bool = False) -> Block:
        """A new block, with cross-attention to a source if `cross`."""
        sizes = (self.heads, self.key_value_heads, self.each_width)
        options: dict[str, Any] = {"qkv_bias": self.bias or self.qkv_bias, "out_bias": self.bias}
        cross_attention = CrossAttention(self.width, *sizes, **options) if cross else None
        if self.qk_norm != "none":
            options["norm"] = QueryKeyNorm(*sizes, self.norm_eps, self.qk_norm)
        if self.attention_cap is not None:
            options["cap"] = self.attention_cap
        return Block(
            ATTENTIONS[self.attention](self.width, *sizes, causal=causal, **options),
            FeedForward(self.width, self.inner_width, self.activation, self.bias),
            self.new_norm,
            self.norm_place,
            self.dropout,
            cross_attention,
        )


class TransformerStack(nn.Module):
    """Positions, blocks and last norm of an encoder or a decoder; a subclass embeds the tokens."""

    def init_stack(self, shape: TransformerShape, layers: int, *, causal: bool, cross: bool = False) -> None:
        self.embed_norm, self.relative = shape.new_embed_norm(), shape.relative(causal=causal)
        added = ADDED_POSITIONS.get(shape.positions)
        self.positions = None if added is None else added(shape.width, shape.context or 1)
        self._rotary = shape.rotary()
        self._rotaries = [self._rotary] * layers
        self.dropout = nn.Dropout(shape.dropout)
        self.blocks: Any = nn.ModuleList(shape.block(causal=causal, cross=cross) for _ in range(layers))
        self.norm: Any = nn.Identity() if shape.norm_place == "post" else shape.new_norm()

    def run_blocks(
        self, x_NTD: Tensor, mask: Tensor | None, arguments: Iterable[tuple[Any, ...]], first: int = 0
    ) -> Tensor:
        """(N, T, D) → (N, T, D): the input of the head, from embedded tokens at positions from `first` on.

        `arguments` are the further arguments of each block.
        """
        T = x_NTD.shape[1]
        if self.relative is not None:
            bias_1HTS = self.relative(first, T)
            mask = bias_1HTS if mask is None else bias_1HTS + mask
        positions_1T = torch.arange(first, first + T, device=x_NTD.device)[None]
        for depth_NTD in self.run_depths(x_NTD, positions_1T, first + T, ((mask, *it) for it in arguments)):
            x_NTD = depth_NTD
        return self.norm(x_NTD)

    def run_depths(
        self, x_NTD: Tensor, positions_NT: Tensor, needed: int, arguments: Iterable[tuple[Any, ...]]
    ) -> Iterator[Tensor]:
        """Yield (N, T, D) before the first block and after each block; positions are below `needed`."""
        if self.positions is not None:
            x_NTD = add_positions(x_NTD, self.positions(positions_NT))
        if self.embed_norm is not None:
            x_NTD = self.embed_norm(x_NTD)
        x_NTD = self.dropout(x_NTD)
        yield x_NTD
        tables = {
            it: it.tables(positions_NT, needed) for it in dict.fromkeys(self._rotaries) if it is not None
        }
        for block, rotary, further in zip(self.blocks, self._rotaries, arguments, strict=True):
            x_NTD = block(x_NTD, None if rotary is None else tables[rotary], *further)
            yield x_NTD


class TransformerModel(TransformerStack):
    """Properties that all models of one or two stacks of blocks share; a subclass has a `config`."""

    config: Any

    @property
    def context(self) -> Any:
        return self.config.context

    @property
    def attention_reading(self) -> Any:
        return self

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        c = self.config
        stacks = (c.layers,) if hasattr(c, "layers") else (c.encoder_layers, c.decoder_layers)
        return tuple((layers, c.heads) for layers in stacks)


def attention_padding(lengths_N: Tensor, x_NTD: Tensor) -> Tensor | None:
    """(N, 1, 1, T): −∞ on padding and 0 elsewhere, to be added to scores; None if there is no padding."""
    padding_NT = padding_mask(lengths_N, x_NTD.shape[1], x_NTD.dtype)
    return None if padding_NT is None else padding_NT[:, None, None]
