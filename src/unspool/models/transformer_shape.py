"""The options that Transformer encoders and decoders share, and the parts that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from unspool.config import check_types
from unspool.models.model_config import at_least_one, needs, one_of, positive, shares
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
    """Sizes and choices of Transformer blocks."""

    POSITIONS: ClassVar[tuple[str, ...]] = (*ADDED_POSITIONS, "rotary", "none")
    """Ways to tell where a token stands that a model of this shape has."""

    width: int
    heads: int
    inner_width: int
    """Between the two matrices of the feed-forward network."""
    kv_heads: int | None = None
    """Heads of keys and values, each shared by a group of query heads; None is one for each of them."""
    head_width: int | None = None
    """None is width / heads."""
    norm: str = "rms"
    norm_eps: float = 1e-5
    norm_place: str = "pre"
    positions: str = "rotary"
    """"rotary", "sinusoidal", "sinusoidal_halves" (Marian's order), "learned" (needs `context`), or "none": a
    bag of words."""
    rotary_base: float = 10000.0
    rotary_scaling: RotaryScaling | None = None
    """How rotary positions were stretched to a longer context (Llama 3)."""
    rotary_yarn: YarnScaling | None = None
    """The same by YaRN."""
    rotary_factor: float = 1.0
    """All rotary waves are slower by this."""
    rotary_width: int | None = None
    """How many numbers of a head are turned, the first ones; None is all of them."""
    qk_norm: str = "none"
    """How queries and keys are normalised: "none", each "head" (Qwen 3, Gemma 3), the "whole" (OLMo 2)."""
    attention_cap: float | None = None
    """Scores of attention are bent to stay below it (Gemma 2)."""
    context: int | None = None
    """The most tokens of a row, which learnt positions need; None is no limit. In an encoder–decoder it is
    each side's own: of a source with its EOS, and of a target with its BOS."""
    activation: str = "swiglu"
    bias: bool = False
    """A bias in every projection."""
    qkv_bias: bool = False
    """A bias in the query, key and value projections only."""
    dropout: float = 0.0
    attention: str = "query_key"
    """How positions of one text look at each other: by queries and keys ("query_key"), or by one matrix for
    each head ("keyless"), which rotary positions do not allow."""

    def __post_init__(self) -> None:
        check_types(self)
        one_of(
            self,
            norm=NORMS,
            norm_place=RESIDUALS,
            positions=self.POSITIONS,
            activation=ACTIVATIONS,
            attention=ATTENTIONS,
            qk_norm=QK_NORMS,
        )
        at_least_one(
            self, "width", "heads", "inner_width", "kv_heads", "head_width", "context", "rotary_width"
        )
        shares(self, "dropout", "norm_eps")
        positive(self, "rotary_base", "rotary_factor")
        if self.attention_cap is not None:
            positive(self, "attention_cap")
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"width={self.width} cannot be shared by heads={self.heads}: give a divisor, or a head_width"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"heads={self.heads} cannot share kv_heads={self.kv_heads}: give a divisor of heads"
            )
        if self.attention == "keyless":
            check_no_rotary(self.positions == "rotary")
            if self.qk_norm != "none" or self.attention_cap is not None:
                raise ValueError("qk_norm and attention_cap are for attention = 'query_key': leave them out")
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
            needs({"context": self.context}, "positions='learned'")

    @property
    def each_width(self) -> int:
        """Of one head."""
        return self.head_width or self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    def rotary(self) -> Rotary | None:
        """What turns queries and keys, where positions are rotary."""
        if self.positions != "rotary":
            return None
        scaling = self.rotary_scaling or self.rotary_yarn
        return Rotary(self.each_width, self.rotary_base, scaling, self.rotary_width, self.rotary_factor)

    def added(self) -> Sinusoidal | Learned | None:
        """What is added to the embeddings, where positions are added."""
        return (
            ADDED_POSITIONS[self.positions](self.width, self.context or 1)
            if self.positions in ADDED_POSITIONS
            else None
        )

    def block(self, *, causal: bool) -> Block:
        """Self-attention and the feed-forward network."""
        return Block(self._attention(causal), self._feed_forward(), self._residual())

    def cross_block(self, *, causal: bool = True) -> CrossBlock:
        """Self-attention, causal or not, cross-attention and the feed-forward network."""
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
        """Behind the last block; under post-norm it is normalised already."""
        return nn.Identity() if self.norm_place == "post" else self.new_norm()

    def new_norm(self) -> nn.Module:
        """A norm as all others of this shape."""
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
