"""A language model of ours as Hugging Face's classes have it: their settings, the weights by their names.

A fused matrix of ours ([W^Q; W^K; W^V], [W_gate; W_up]) is cut into theirs without a change of any number.
Theirs have one kind of head: log p = log_softmax(W h), with W the embedding or not. Every head of ours that
says so is exported (of a tempered or bilinear one, the W that it comes to); others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from unspool.heads.softmax import TiedSoftmax
from unspool.models.adapters import merged_weights
from unspool.models.transformer_lm import TransformerConfig, TransformerLM

if TYPE_CHECKING:
    from unspool.protocols import Text


@dataclass(frozen=True)
class Twin:
    """What one of their classes is filled with."""

    family: str
    """Their `model_type`."""
    architecture: str
    """The name of their class."""
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    implied: frozenset[str] = frozenset()
    """Tensors that their class makes of others, or of nothing."""


UNKNOWN_TO_THEM = (
    *("attention_cap", "embed_scale", "qk_norm", "rotary_factor", "rotary_width", "rotary_yarn"),
    *("unrotated_layers", "window_rotary_base"),
)
"""Options of other families."""


def huggingface_twin(model: TransformerLM) -> Twin:
    """The settings and weights of the equal `LlamaForCausalLM`, `MistralForCausalLM` or `GPT2LMHeadModel`.

    Mistral is Llama with sliding-window attention in every layer and without biases. Adapters are merged into
    their matrices.
    """
    if not isinstance(model, TransformerLM):
        raise TypeError(
            f"there is no Hugging Face class to fill from a {type(model).__name__}: only from a "
            "TransformerLM or a TransformerSeq2Seq"
        )
    config, head = model.config, _head_weights(model)
    shared = {"tie_word_embeddings": not head, **_ends(model.text)}
    if config.attention != "query_key":
        raise ValueError(
            f"attention={config.attention!r} has no Hugging Face twin: give it keys first "
            "(unspool.models.key_elimination.with_keys)"
        )
    for name in UNKNOWN_TO_THEM:
        if getattr(config, name) != getattr(TransformerConfig, name):
            raise ValueError(
                f"{name}={getattr(config, name)!r:.60} has no place in the classes of Llama and GPT-2, "
                "which are the only twins here: save the model as ours"
            )
    if config.norm_place != "pre":
        raise ValueError(f"norm_place={config.norm_place!r} has no Hugging Face twin here: only 'pre' has")
    kind = (config.norm, config.positions, config.activation)
    is_llama = kind == ("rms", "rotary", "swiglu")
    if config.windowed_layers and not (is_llama and len(config.windowed_layers) == config.layers):
        raise ValueError(
            "only Mistral's class has a sliding window, and that in every layer of a Llama: "
            "save the model in this package's own format"
        )
    ours = {name: value.detach() for name, value in merged_weights(model).items()}
    if is_llama and config.windowed_layers:
        said = {**_mistral_config(config), **shared}
        return Twin("mistral", "MistralForCausalLM", said, _llama_weights(config, ours) | head)
    if is_llama:
        said = {**_llama_config(config), **shared}
        return Twin("llama", "LlamaForCausalLM", said, _llama_weights(config, ours) | head)
    if kind == ("layer", "learned", "gelu_tanh"):
        said = {**_gpt2_config(config), **shared}
        return Twin("gpt2", "GPT2LMHeadModel", said, _gpt2_weights(config, ours) | head)
    raise ValueError(
        f"a model with norm={config.norm!r}, positions={config.positions!r} and "
        f"activation={config.activation!r} is neither of the Llama nor of the GPT-2 family: "
        "there is no Hugging Face class to fill"
    )


def _head_weights(model: TransformerLM) -> dict[str, Tensor]:
    """The output matrix under their name; nothing where it is the embedding."""
    matrix_VD = model.output_matrix
    kind = type(model.head).__name__
    if matrix_VD is None:
        raise ValueError(
            f"a {kind} head is no softmax of one matrix's products, the only head that Hugging Face's "
            "classes have: export a model with a softmax, tempered or bilinear head"
        )
    if model.head.bias is not None:
        raise ValueError(
            f"this {kind} head has a bias for every word, and Hugging Face's classes have no place for it: "
            "export a model whose head has bias = false"
        )
    return {} if isinstance(model.head, TiedSoftmax) else {"lm_head.weight": matrix_VD.detach()}


def _ends(text: Text | None) -> dict[str, Any]:
    """The tokens that begin and end a text. Without a text there are none: not those of their defaults."""
    eos = [] if text is None else sorted(text.eos_ids)
    return {
        "bos_token_id": None if text is None else text.bos_id,
        "eos_token_id": (eos[0] if len(eos) == 1 else eos) if eos else None,
    }


def _llama_config(c: TransformerConfig) -> dict[str, Any]:
    if c.qkv_bias:
        raise ValueError("qkv_bias without other biases is Qwen 2's: there is no Llama class to fill")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rotary_base}
    if c.rotary_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": c.rotary_scaling.factor,
            "low_freq_factor": c.rotary_scaling.low_freq_factor,
            "high_freq_factor": c.rotary_scaling.high_freq_factor,
            "original_max_position_embeddings": c.rotary_scaling.original_context,
        }
    return {
        "vocab_size": c.vocab_size,
        "hidden_size": c.width,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.key_value_heads,
        "head_dim": c.each_width,
        "intermediate_size": c.inner_width,
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.norm_eps,
        "rope_parameters": rope,
        "attention_bias": c.bias,
        "mlp_bias": c.bias,
    }


def _mistral_config(c: TransformerConfig) -> dict[str, Any]:
    if c.bias:
        raise ValueError("Mistral's class has no biases: save the model in this package's own format")
    llama = _llama_config(c)
    del llama["attention_bias"], llama["mlp_bias"]
    return {**llama, "sliding_window": c.window}


def _llama_weights(c: TransformerConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    theirs = {"model.embed_tokens.weight": ours["embed.weight"], "model.norm.weight": ours["norm.weight"]}
    heads = (c.heads * c.each_width, c.key_value_heads * c.each_width, c.key_value_heads * c.each_width)
    for i in range(c.layers):
        block, layer = f"blocks.{i}.", f"model.layers.{i}."
        theirs[layer + "input_layernorm.weight"] = ours[block + "attention_norm.weight"]
        theirs[layer + "post_attention_layernorm.weight"] = ours[block + "feed_forward_norm.weight"]
        for kind in ("weight", "bias") if c.bias else ("weight",):
            qkv = ours[f"{block}attention.qkv.{kind}"].split_with_sizes(heads)
            for name, part in zip(("q_proj", "k_proj", "v_proj"), qkv, strict=True):
                theirs[f"{layer}self_attn.{name}.{kind}"] = part
            theirs[f"{layer}self_attn.o_proj.{kind}"] = ours[f"{block}attention.out.{kind}"]
            gate, up = ours[f"{block}feed_forward.up.{kind}"].chunk(2)
            theirs[f"{layer}mlp.gate_proj.{kind}"], theirs[f"{layer}mlp.up_proj.{kind}"] = gate, up
            theirs[f"{layer}mlp.down_proj.{kind}"] = ours[f"{block}feed_forward.down.{kind}"]
    return theirs


def _gpt2_config(c: TransformerConfig) -> dict[str, Any]:
    if not c.bias or c.key_value_heads != c.heads or c.heads * c.each_width != c.width:
        raise ValueError("GPT-2 has biases, as many key–value heads as heads, and heads × head_width = width")
    return {
        "vocab_size": c.vocab_size,
        "n_embd": c.width,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_inner": c.inner_width,
        "n_positions": c.context,
        "layer_norm_epsilon": c.norm_eps,
    }


def _gpt2_weights(c: TransformerConfig, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    theirs = {
        "transformer.wte.weight": ours["embed.weight"],
        "transformer.wpe.weight": ours["positions.weight"],
        "transformer.ln_f.weight": ours["norm.weight"],
        "transformer.ln_f.bias": ours["norm.bias"],
    }
    names = {
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward_norm": "ln_2",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    for i in range(c.layers):
        for our_name, their_name in names.items():
            weight, bias = (ours[f"blocks.{i}.{our_name}.{kind}"] for kind in ("weight", "bias"))
            # GPT-2 stores its products as (inputs, outputs)
            theirs[f"transformer.h.{i}.{their_name}.weight"] = weight.t() if weight.dim() == 2 else weight
            theirs[f"transformer.h.{i}.{their_name}.bias"] = bias
    return theirs
