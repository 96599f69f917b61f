"""Settings that Transformer encoders and decoders share, and their building blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from unspool.config import check_types
from unspool.models.model_config import (
    check_choices,
    check_fractions,
    check_given,
    check_positive,
    check_sizes,
)
from unspool.nn.attention import QUERY_KEY_NORMS as QK_NORMS, CrossAttention, QueryKeyNorm, SelfAttention
from unspool.nn.keyless_attention import KeylessAttention, check_no_rotary
from unspool.nn.norms import NORMS, RESIDUALS, ResidualConfig
from unspool.nn.positions import ADDED_POSITIONS, Learned, Rotary, RotaryScaling, Sinusoidal, YarnScaling
from unspool.nn.transformer import ACTIVATIONS, Block, CrossBlock, FeedForward

ATTENTIONS: dict[str, type[SelfAttention] | type[KeylessAttention]] = {
    "keyless": KeylessAttention,
    "query_key": SelfAttention,
}


@dataclass(frozen=True, kw_only=True)
class TransformerShape:
    """Settings of Transformer blocks."""

    POSITIONS: ClassVar[tuple[str, ...]] = (*ADDED_POSITIONS, "rotary", "none")
    """The supported position encodings."""

    width: int
    heads: int
    inner_width: int
    """The inner width of the feed-forward network."""
    kv_heads: int | None = None
    """Key–value heads, each shared by a group of query heads; None means as many as `heads`."""
    head_width: int | None = None
    """The width of a head; None means width / heads."""
    norm: str = "rms"
    norm_eps: float = 1e-5
    norm_place: str = "pre"
    positions: str = "rotary"
    """"rotary", "sinusoidal", "sinusoidal_halves" (Marian's order), "learned" (needs `context`) or "none"."""
    rotary_base: float = 10000.0
    rotary_scaling: RotaryScaling | None = None
    """Llama 3's scaling of rotary positions to a longer context."""
    rotary_yarn: YarnScaling | None = None
    """YaRN scaling of rotary positions."""
    rotary_factor: float = 1.0
    """The divisor of all rotary frequencies."""
    rotary_width: int | None = None
    """The number of rotated dimensions of a head; None means all."""
    qk_norm: str = "none"
    """QK-norm: "none", per "head" (Qwen 3, Gemma 3) or over the "whole" (OLMo 2)."""
    attention_cap: float | None = None
    """Soft cap of attention scores (Gemma 2)."""
    context: int | None = None
    """The maximum number of tokens; None means no limit. In an encoder–decoder it applies to each side
    (a source with EOS, a target with BOS)."""
    activation: str = "swiglu"
    bias: bool = False
    """A bias in every projection."""
    qkv_bias: bool = False
    """A bias in the query, key and value projections only."""
    dropout: float = 0.0
    attention: str = "query_key"
    """"query_key" attention, or "keyless" with one matrix per head (not with rotary positions)."""

    def __post_init__(self) -> None:
        check_types(self)
        check_choices(
            self,
            norm=NORMS,
            norm_place=RESIDUALS,
            positions=self.POSITIONS,
            activation=ACTIVATIONS,
            attention=ATTENTIONS,
            qk_norm=QK_NORMS,
        )
        check_sizes(
            self, "width", "heads", "inner_width", "kv_heads", "head_width", "context", "rotary_width"
        )
        check_fractions(self, "dropout", "norm_eps")
        check_positive(self, "rotary_base", "rotary_factor")
        if self.attention_cap is not None:
            check_positive(self, "attention_cap")
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
        if self.positions == "learned":
            check_given({"context": self.context}, "positions='learned'")

    @property
    def each_width(self) -> int:
        """The width of one head."""
        return self.head_width or self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    def rotary(self) -> Rotary | None:
        if self.positions != "rotary":
            return None
        scaling = self.rotary_scaling or self.rotary_yarn
        return Rotary(self.each_width, self.rotary_base, scaling, self.rotary_width, self.rotary_factor)

    def added(self) -> Sinusoidal | Learned | None:
        """The positions that are added to embeddings, or None."""
        return (
            ADDED_POSITIONS[self.positions](self.width, self.context or 1)
            if self.positions in ADDED_POSITIONS
            else None
        )

    def block(self, *, causal: bool) -> Block:
        return Block(self._attention(causal), self._feed_forward(), self._residual())

    def cross_block(self, *, causal: bool = True) -> CrossBlock:
        cross = CrossAttention(
            self.width,
            self.heads,
            self.key_value_heads,
            self.each_width,
            qkv_bias=self.bias or self.qkv_bias,
            out_bias=self.bias,
        )
        return CrossBlock(self._attention(causal), cross, self._feed_forward(), self._residual())

    def last_norm(self) -> nn.Module:
        """The norm after the last block; the identity with post-norm."""
        return nn.Identity() if self.norm_place == "post" else self.new_norm()

    def new_norm(self) -> nn.Module:
        return NORMS[self.norm](self.width, self.norm_eps)

    def _attention(self, causal: bool) -> SelfAttention | KeylessAttention:
        more: dict[str, Any] = {}
        if self.qk_norm != "none":
            sizes = (self.heads, self.key_value_heads, self.each_width)
            more["norm"] = QueryKeyNorm(*sizes, self.norm_eps, self.qk_norm)
        if self.attention_cap is not None:
            more["cap"] = self.attention_cap
        return ATTENTIONS[self.attention](
            self.width,
            self.heads,
            self.key_value_heads,
            self.each_width,
            qkv_bias=self.bias or self.qkv_bias,
            out_bias=self.bias,
            causal=causal,
            **more,
        )

    def _residual(self) -> ResidualConfig:
        return ResidualConfig(self.width, self.norm, self.norm_eps, self.norm_place, self.dropout)

    def _feed_forward(self) -> FeedForward:
        return FeedForward(self.width, self.inner_width, self.activation, self.bias)
