"""What runs a Transformer's steps: torch, or one compiled call a token (`nn.compiled`).

    torch      always there: gradients, GPUs, half precision, hooks
    compiled   float32 on a CPU, with numba (`pip install unspool[fast]`): faster, with one copy of the
               weights, and the same log-probabilities to the bit in any batch

A model takes the compiled step where it can, unless it is told which to take. A text is finished by the
engine that began it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from unspool.heads.softmax import Softmax, TiedSoftmax
from unspool.models.compiled_state import CompiledState
from unspool.nn.attention.self_attention import SelfAttention
from unspool.nn.feed_forward import GATED, FeedForward
from unspool.nn.norms import LayerNorm, RMSNorm
from unspool.nn.positions import Learned, Sinusoidal
from unspool.nn.transformer import Block
from unspool.nn.weight_layout import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspool.models.transformer_lm import TransformerConfig, TransformerLM
    from unspool.nn.compiled.engine import Engine

EngineName = Literal["torch", "compiled"]
ENGINES: tuple[EngineName, ...] = ("torch", "compiled")

ALL_NORMS = (RMSNorm, LayerNorm)
KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "embed": (nn.Embedding,),
    "positions": (Learned, Sinusoidal),
    "dropout": (nn.Dropout,),
    "blocks": (nn.ModuleList,),
    "attention": (SelfAttention,),
    "feed_forward": (FeedForward,),
    **dict.fromkeys(("qkv", "out", "up", "down"), (Linear,)),
    **dict.fromkeys(("attention_norm", "feed_forward_norm"), ALL_NORMS),
    **dict.fromkeys(("attention_post_norm", "feed_forward_post_norm", "norm"), (*ALL_NORMS, nn.Identity)),
}
"""What a compiled step knows how to compute, by the name of the part. Numbered parts are Blocks."""


def known_engine(name: str | None) -> EngineName | None:
    """The engine of that name; None leaves the choice to the model."""
    for engine in ENGINES:
        if name == engine:
            return engine
    if name is None:
        return None
    raise ValueError(
        f"engine {name!r:.40} is unknown: choose from {', '.join(ENGINES)}, or None for the best"
    )


def obstacle(model: TransformerLM) -> str | None:
    """Why this model's steps cannot be compiled, as it is now; None where they can."""
    if find_spec("numba") is None:
        return "numba is not installed (pip install unspool[fast])"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    for name, part in model.named_modules():
        inside = part is not model and not f"{name}.".startswith("head.")
        if inside and type(part) not in KINDS.get(name.rpartition(".")[2], (Block,)):
            return f"{name} is a {type(part).__name__}, which has no kernel"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{name or 'the model'} has hooks, which would not be called"
        if isinstance(part, nn.Dropout) and part.training and part.p > 0 and not model.training:
            return f"{name} is in train mode"
    sizes = _sizes(model.config)
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            return f"{name} is {str(weight.dtype).removeprefix('torch.')} on {weight.device}"
        if type(weight) is not nn.Parameter or not weight.is_contiguous():
            return f"{name} does not lie in memory as plain rows"
        expected = sizes.get(name.split(".", 2)[-1] if name.startswith("blocks.") else name)
        if expected is not None and tuple(weight.shape) != expected:
            return f"{name} has the shape {tuple(weight.shape)}, where the model's says {expected}"
    return None


def _sizes(c: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights that a step reads, for which a kernel never looks behind the end."""
    heads, up = c.heads * c.each_width, c.inner_width * (2 if c.activation in GATED else 1)
    qkv = heads + 2 * c.key_value_heads * c.each_width
    matrices = {
        "attention.qkv": (qkv, c.width),
        "attention.out": (c.width, heads),
        "feed_forward.up": (up, c.width),
        "feed_forward.down": (c.width, c.inner_width),
        "embed": (c.vocab_size, c.width),
        "head": (c.vocab_size, c.width),
    }
    norms = ("attention_norm", "attention_post_norm", "feed_forward_norm", "feed_forward_post_norm", "norm")
    found: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in matrices.items()}
    found |= {f"{name}.bias": shape[:1] for name, shape in matrices.items()}
    found |= {f"{name}.{what}": (c.width,) for name in norms for what in ("weight", "bias")}
    return found


def engine_of(model: TransformerLM, forced: EngineName | None) -> EngineName:
    """What a text that begins now is read and written with."""
    if forced != "compiled":
        return "torch"
    found = obstacle(model)
    if found is not None:
        raise ValueError(f"the step of this model cannot be compiled: {found}; take engine='torch', or None")
    return "compiled"


def compiled_state(model: TransformerLM, prompts: Sequence[Sequence[int]]) -> CompiledState:
    """A state for these prompts, which are still to be read."""
    from unspool.nn.compiled.pool import BlockPool

    engine = compiled_engine(model)
    plain = type(model.head) in (Softmax, TiedSoftmax)
    pool = BlockPool.empty(engine.shape, len(prompts))
    return CompiledState(engine, pool, None if plain else model.head, [len(prompt) for prompt in prompts])


def compiled_engine(model: TransformerLM) -> Engine:
    """The compiled step of a model, on the memory of its own parameters."""
    from unspool.nn.compiled import parts
    from unspool.nn.compiled.engine import Engine, Weights
    from unspool.nn.compiled.tables import Tables

    c = model.config
    weights = Weights(c.layers)
    for layer, block in enumerate(model.blocks):
        _put_block(weights, layer, block)
    _put_norm(weights, c.layers, parts.LAST_NORM, model.norm)
    weights.put(c.layers, parts.EMBED, model.embed.weight)
    if type(model.head) in (Softmax, TiedSoftmax):
        weights.put(c.layers, parts.HEAD, model.head.weight, model.head.bias)
    shape = parts.Shape(
        c.width,
        c.layers,
        c.heads,
        c.key_value_heads,
        c.each_width,
        c.inner_width,
        c.vocab_size,
        parts.NORMS[c.norm],
        c.norm_eps,
        parts.PLACES[c.norm_place],
        parts.ACTIVATIONS[c.activation],
        c.positions == "rotary",
    )
    return Engine(shape, weights, Tables(model._rotary, model.positions))


def _put_block(weights: Any, layer: int, block: Any) -> None:
    from unspool.nn.compiled import parts

    matrices = {
        parts.QKV: block.attention.qkv,
        parts.ATTENTION_OUT: block.attention.out,
        parts.UP: block.feed_forward.up,
        parts.DOWN: block.feed_forward.down,
    }
    norms = {
        parts.ATTENTION_NORM: block.attention_norm,
        parts.ATTENTION_POST_NORM: block.attention_post_norm,
        parts.FEED_FORWARD_NORM: block.feed_forward_norm,
        parts.FEED_FORWARD_POST_NORM: block.feed_forward_post_norm,
    }
    for part, linear in matrices.items():
        weights.put(layer, part, linear.weight, linear.bias)
    for part, norm in norms.items():
        _put_norm(weights, layer, part, norm)


def _put_norm(weights: Any, layer: int, part: int, norm: nn.Module) -> None:
    weight: Tensor | None = getattr(norm, "weight", None)
    if weight is not None:
        weights.put(layer, part, weight, getattr(norm, "bias", None))
