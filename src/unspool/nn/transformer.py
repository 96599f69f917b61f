"""Transformer blocks: attention, then the feed-forward network, each on a residual branch.

    encoder, language model   x → x + self-attention → x + feed-forward
    decoder                   x → x + self-attention → x + cross-attention → x + feed-forward

Vaswani et al. 2017, §3.1 (papers.bib: vaswani2017attention).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.nn.attention import CrossAttention, KeyValues, SelfAttention
from unspool.nn.keyless_attention import KeylessAttention
from unspool.nn.linear import DirectCall, Linear
from unspool.nn.norms import PLACES, ResidualShape


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) ⊙ up, where x = [gate; up]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def geglu(x: Tensor) -> Tensor:
    """gelu(gate) ⊙ up, where x = [gate; up] and gelu is the one of tanh."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "geglu": geglu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swiglu": swiglu,
}
GATED = frozenset({"geglu", "swiglu"})


class FeedForward(DirectCall):
    """Width D → inner width → D.

    The same small network at every position.

        plain  W₂ f(W₁ x)  Vaswani et al. 2017, eq. 2 (papers.bib: vaswani2017attention)
                      f: ReLU, GELU or SiLU, x · σ(x)
        SwiGLU        W₂ (silu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)
        GeGLU         W₂ (gelu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)

    With inner width 4D and no biases the plain form has 8D² weights. `up` holds W₁, or W_gate above W_up, so
    that one product serves both.
    """

    def __init__(self, width: int, inner_width: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.up = Linear(width, inner_width * (2 if activation in GATED else 1), bias)
        self.down = Linear(inner_width, width, bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        out: Tensor = self.down(self.activation(self.up(x)))
        return out


class Recomputable(nn.Module):
    """A layer that may compute again what it has forgotten.

    Gradient checkpointing: a layer keeps what goes into it, and computes all else again for its gradient.

        memory of L layers   L · (all it computes)   →   L · (what goes in) + (all that one computes)
        time                 forward + backward      →   2 · forward + backward

    Chen et al. 2016, §4 (papers.bib: chen2016training). The gradient is the same to the bit, dropout
    included.
    """

    recomputes = False
    """Whether it does: `recompute` says so."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """`forward`, of which nothing but the inputs is kept where it recomputes."""
        if not (self.recomputes and torch.is_grad_enabled()):
            return super().__call__(*inputs, **named)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(super().__call__, *inputs, use_reentrant=False, **named)


def recompute(model: nn.Module) -> None:
    """Let every layer of the model recompute in its backward pass."""
    layers = [part for part in model.modules() if isinstance(part, Recomputable)]
    if not layers:
        raise ValueError(
            f"train.recompute is for models of Transformer blocks, and a {type(model).__name__} has none: "
            "leave it out"
        )
    for layer in layers:
        layer.recomputes = True


CrossKeyValues = tuple[Tensor, Tensor, Tensor | None]
"""Keys and values of the source, and its padding, as CrossAttention takes them."""


class EncoderOutput(NamedTuple):
    """What the encoder says of the source, from which a block computes its own keys and values.

    FSDP gathers the weights of a block while its `forward` runs, so that training computes them there.
    """

    memory_NSD: Tensor
    padding_N11S: Tensor | None


class Block(Recomputable):
    """x → x + attention → x + feed-forward, normalised where `norm_place` says."""

    def __init__(
        self,
        attention: SelfAttention | KeylessAttention,
        feed_forward: FeedForward,
        residual: ResidualShape,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = residual.new_norm(), residual.new_norm()
        self.dropout = nn.Dropout(residual.dropout)
        self.place = PLACES[residual.norm_place]
        self.attention_post_norm = residual.new_post_norm()
        self.feed_forward_post_norm = residual.new_post_norm()

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D); α, where it is asked for, is appended to `looks`."""
        return self.apply_feed_forward(self.attend(x_NTD, rotary, mask, past, looks))

    def attend(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
        looks: list[Tensor] | None = None,
    ) -> Tensor:
        """x + self-attention."""
        return self.place(
            x_NTD,
            self.attention_norm,
            lambda x: self._dropped(self.attention(x, rotary, mask, past, looks)),
            self.attention_post_norm,
        )

    def attend_once(
        self, x_ND: Tensor, rotary: tuple[Tensor, Tensor] | None, mask: Tensor | None, past: KeyValues
    ) -> Tensor:
        """x + self-attention, for one token of every row."""
        return self.place(
            x_ND,
            self.attention_norm,
            lambda x: self._dropped(self.attention.step(x, rotary, mask, past)),
            self.attention_post_norm,
        )

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """x + feed-forward."""
        return self.place(
            x,
            self.feed_forward_norm,
            lambda x: self._dropped(self.feed_forward(x)),
            self.feed_forward_post_norm,
        )

    def _dropped(self, x: Tensor) -> Tensor:
        return self.dropout(x) if self.training else x


class CrossBlock(Block):
    """A decoder's block, which looks at a source between its own past and the feed-forward network."""

    def __init__(
        self,
        attention: SelfAttention | KeylessAttention,
        cross_attention: CrossAttention,
        feed_forward: FeedForward,
        residual: ResidualShape,
    ) -> None:
        super().__init__(attention, feed_forward, residual)
        self.cross_attention = cross_attention
        self.cross_attention_norm = residual.new_norm()
        self.cross_attention_post_norm = residual.new_post_norm()

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KeyValues | None = None,
        looks: list[Tensor] | None = None,
        source: CrossKeyValues | EncoderOutput | None = None,
        source_looks: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D); without a source, as a block that has none.

        α of every head, where it is asked for, is appended to `looks`, and of those that look at the source,
        (N, H, T, S), to `source_looks`.
        """
        x_NTD = self.attend(x_NTD, rotary, mask, past, looks)
        if isinstance(source, EncoderOutput):
            source = (*self.cross_attention.keys_values(source.memory_NSD), source.padding_N11S)
        if source is not None and source_looks is not None:
            x_NTD = self._told(x_NTD, source, self.cross_attention.watched_heads, source_looks)
        elif source is not None:
            x_NTD = self.attend_to_source(x_NTD, source)
        return self.apply_feed_forward(x_NTD)

    def attend_to_source(self, x: Tensor, source: CrossKeyValues) -> Tensor:
        """x + cross-attention: (N, T, D) or (N, D) → the same."""
        return self.place(
            x,
            self.cross_attention_norm,
            lambda x: self._dropped(self.cross_attention(x, *source)),
            self.cross_attention_post_norm,
        )

    def attend_to_source_and_tell(self, x: Tensor, source: CrossKeyValues) -> tuple[Tensor, Tensor]:
        """x + cross-attention, and where it looked, averaged over the heads: (N, T, S) or (N, S)."""
        looked: list[Tensor] = []
        x = self._told(x, source, self.cross_attention.watched, looked)
        return x, looked[0]

    def _told(
        self,
        x: Tensor,
        source: CrossKeyValues,
        watched: Callable[..., tuple[Tensor, Tensor]],
        looks: list[Tensor],
    ) -> Tensor:
        """x + cross-attention; what `watched` tells of it is appended to `looks`."""

        def branch(x: Tensor) -> Tensor:
            out, alpha = watched(x, *source)
            looks.append(alpha)
            return self._dropped(out)

        return self.place(x, self.cross_attention_norm, branch, self.cross_attention_post_norm)
