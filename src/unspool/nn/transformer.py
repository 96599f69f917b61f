"""Transformer blocks: attention and feed-forward networks on residual branches, with gradient checkpointing.

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

from unspool.nn.attention import CrossAttention, KVCache, SelfAttention
from unspool.nn.keyless_attention import KeylessAttention
from unspool.nn.linear import DirectCall, Linear
from unspool.nn.norms import add_branch


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) ⊙ up, where x = [gate; up]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def geglu(x: Tensor) -> Tensor:
    """gelu(gate) ⊙ up, where x = [gate; up], with the tanh approximation of gelu."""
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
    """Position-wise feed-forward network: width D → inner width → D.

        plain         W₂ f(W₁ x)                     Vaswani et al. 2017, eq. 2 (papers.bib:
        vaswani2017attention)
                      f: ReLU, GELU or SiLU, x · σ(x)
        SwiGLU        W₂ (silu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)
        GeGLU         W₂ (gelu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)

    `up` holds W₁, or W_gate stacked on W_up, so one product serves both.
    """

    def __init__(self, width: int, inner_width: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.up = Linear(width, inner_width * (2 if activation in GATED else 1), bias)
        self.down = Linear(inner_width, width, bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class CheckpointedLayer(nn.Module):
    """Gradient checkpointing: a layer stores only its inputs and recomputes its activations for the gradient.

        memory of L layers   L · (activations)     →   L · (inputs) + (activations of one layer)
        time                 forward + backward    →   2 · forward + backward

    Chen et al. 2016, §4 (papers.bib: chen2016training). The gradient is bit-identical, including dropout.
    """

    is_checkpointed = False
    """Set by `enable_checkpointing`."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not (self.is_checkpointed and torch.is_grad_enabled()):
            return super().__call__(*inputs, **named)
        from torch.utils.checkpoint import checkpoint

        return checkpoint(super().__call__, *inputs, use_reentrant=False, **named)


def enable_checkpointing(model: nn.Module) -> None:
    """Enable gradient checkpointing in every Transformer block of the model."""
    layers = [part for part in model.modules() if isinstance(part, CheckpointedLayer)]
    if not layers:
        raise ValueError(
            f"train.recompute needs Transformer blocks, which {type(model).__name__} lacks: remove it"
        )
    for layer in layers:
        layer.is_checkpointed = True


CrossKeyValues = tuple[Tensor, Tensor, Tensor | None]
"""Keys, values and padding of the source: the arguments of CrossAttention."""


class EncoderOutput(NamedTuple):
    """The encoder output, from which a decoder block computes its keys and values in `forward`.

    FSDP gathers the weights of a block only while its `forward` runs, so training computes them there.
    """

    memory_NSD: Tensor
    padding_N11S: Tensor | None


class Block(CheckpointedLayer):
    """A Transformer block; a decoder block of an encoder–decoder also has cross-attention to the source."""

    def __init__(
        self,
        attention: SelfAttention | KeylessAttention,
        feed_forward: FeedForward,
        new_norm: Callable[[], nn.Module],
        norm_place: str,
        dropout: float = 0.0,
        cross_attention: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        new_post_norm = new_norm if norm_place == "both" else nn.Identity
        self.norm_place = norm_place
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_norm, self.feed_forward_norm = new_norm(), new_norm()
        self.dropout = nn.Dropout(dropout)
        self.attention_post_norm, self.feed_forward_post_norm = new_post_norm(), new_post_norm()
        if cross_attention is not None:
            self.cross_attention = cross_attention
            self.cross_attention_norm, self.cross_attention_post_norm = new_norm(), new_post_norm()

    def forward(
        self,
        x_NTD: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        past: KVCache | None = None,
        attentions: list[Tensor] | None = None,
        source: CrossKeyValues | EncoderOutput | None = None,
        cross_attentions: list[Tensor] | None = None,
    ) -> Tensor:
        """(N, T, D) → (N, T, D); without a source, cross-attention is skipped.

        If they are lists, α of self-attention is appended to `attentions`, and α of cross-attention (N, H,
        T, S) to `cross_attentions`.
        """
        x_NTD = self._add_branch(x_NTD, "attention", rotary, mask, past, attentions)
        if isinstance(source, EncoderOutput):
            source = (*self.cross_attention.keys_values(source.memory_NSD), source.padding_N11S)
        if source is not None:
            x_NTD = self._add_branch(x_NTD, "cross_attention", *source, cross_attentions)
        return self._add_branch(x_NTD, "feed_forward")

    def _add_branch(self, x: Tensor, name: str, *inputs: Any) -> Tensor:
        branch, norm, post_norm = (getattr(self, name + end) for end in ("", "_norm", "_post_norm"))

        def with_dropout(x: Tensor) -> Tensor:
            out: Tensor = branch(x, *inputs)
            return self.dropout(out) if self.training else out

        return add_branch(self.norm_place, x, norm, with_dropout, post_norm)
